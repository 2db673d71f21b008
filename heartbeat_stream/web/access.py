"""Who may see the web view: whoever shows the token, or a pass that was made with it.

A pass is ``EXPIRY.SIGNATURE``: a time in seconds since 1970, signed with the token. Every worker
that has the token can make one and recognise one, so that nothing has to be remembered, and the
token itself neither stays in a browser nor goes from worker to worker.
"""

import hmac
import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from heartbeat_stream.complaints import Complaints

__all__ = ["COOKIE", "ROUTED_PASS_S", "SIGNED_IN_S", "Access"]

COOKIE: Final = "heartbeat_pass"
#: How long somebody who has signed in stays so.
SIGNED_IN_S: Final = 12 * 3600
#: Of the pass that goes along with a request which is passed on: more than clocks differ by.
ROUTED_PASS_S: Final = 300

_BEARER = "bearer "

logger = logging.getLogger(__name__)


class Access:
    """The judgement of one worker. Without a token everybody is let in."""

    def __init__(self, token: str | None, now_ms: Callable[[], int]) -> None:
        self._token = token.encode() if token is not None else None
        self._now_ms = now_ms
        self._complaints = Complaints(logger)

    @property
    def guarded(self) -> bool:
        """Whether a token is asked for at all."""
        return self._token is not None

    def admits(self, authorization: str | None, cookie: str | None) -> bool:
        """Judge a request by its header ``Authorization``, or else by its cookie."""
        if self._token is None:
            return True
        if authorization is not None and authorization[: len(_BEARER)].lower() == _BEARER:
            shown = authorization[len(_BEARER) :].strip()
            return self.is_token(shown) or self._is_pass(shown)
        return cookie is not None and self._is_pass(cookie)

    def is_token(self, text: str) -> bool:
        """Whether this is the token, found out in a time that tells nothing about it."""
        if self._token is None:
            return False
        # Of equal length, whatever was given.
        given = sha256(text.encode(errors="surrogateescape")).digest()
        return hmac.compare_digest(given, sha256(self._token).digest())

    def complain(self, remote: str | None) -> None:
        """Say in the log, once in a while, that somebody has shown something else."""
        self._complaints.warning("%s asked the web view with a wrong token", remote)

    def new_pass(self, lifetime_s: int) -> str | None:
        """A pass that is good from now on for so long; None where nobody asks for one."""
        if self._token is None:
            return None
        expiry = str(self._now_ms() // 1000 + lifetime_s)
        return f"{expiry}.{self._signature(expiry)}"

    def authorization(self) -> dict[str, str]:
        """The headers that let a request in at another worker with the same token."""
        made = self.new_pass(ROUTED_PASS_S)
        return {"Authorization": f"Bearer {made}"} if made is not None else {}

    def _is_pass(self, text: str) -> bool:
        expiry, _, signature = text.partition(".")
        signature_is_right = hmac.compare_digest(
            signature.encode(errors="surrogateescape"), self._signature(expiry).encode()
        )
        return (
            signature_is_right
            and expiry.isascii()
            and expiry.isdigit()
            and int(expiry) > self._now_ms() // 1000
        )

    def _signature(self, expiry: str) -> str:
        message = b"heartbeat-stream web view until " + expiry.encode(errors="surrogateescape")
        return hmac.digest(self._token or b"", message, "sha256").hex()
