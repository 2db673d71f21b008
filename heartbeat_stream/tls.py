"""What OpenSSL has against a server's certificate, for messages that say what to do."""

from __future__ import annotations

import ssl

__all__ = ["is_another_hosts", "words_about"]

# OpenSSL's codes for a certificate that is good, but another host's: by name, by address.
_OTHER_NAME = frozenset({62, 64})


def is_another_hosts(error: ssl.SSLCertVerificationError) -> bool:
    """Whether the certificate is trusted, and for another name than that of the connection."""
    return getattr(error, "verify_code", None) in _OTHER_NAME


def words_about(error: ssl.SSLCertVerificationError) -> str:
    """OpenSSL's own words, fit for parentheses."""
    # An error that was made by hand has no message of OpenSSL's.
    return str(getattr(error, "verify_message", error)).rstrip(".")
