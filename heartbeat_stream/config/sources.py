"""Where the text of a setting comes from: a flag, the environment, a `.env` file or a secret's."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from heartbeat_stream.config.dotenv import DotenvError, read_dotenv
from heartbeat_stream.config.urls import redact_url

# Kubernetes puts variables of these forms into each pod for each Service: one that is called
# "heartbeat-web" makes HEARTBEAT_WEB_PORT=tcp://10.0.0.7:6066.
_SERVICE_LINK = re.compile(
    r".*_(?:SERVICE_HOST|SERVICE_PORT(?:_.*)?|PORT|PORT_\d+_(?:TCP|UDP|SCTP)(?:_.*)?)"
)
_SERVICE_LINK_VALUE = re.compile(r"(?:tcp|udp|sctp)://")

# Longer values are cut in messages.
_SHOWN = 80


class SettingsError(Exception):
    """A setting is wrong. The text is one line: the variable, its value, what would be right."""

    @classmethod
    def of(cls, given: Given, wants: str, *, secret: bool) -> SettingsError:
        """For a value that cannot be read."""
        value = "its value" if secret else '"' + _shown(given.text) + '"'
        hint = ""
        if _SERVICE_LINK_VALUE.match(given.text):
            hint = " (a Kubernetes service link? set enableServiceLinks: false)"
        return cls(f"{given.name}: {value} is wrong: want {wants}{hint}")


@dataclass(frozen=True)
class Given:
    """The text given for a variable, and how to call the place where it stands."""

    name: str
    text: str


def collect(
    environ: Mapping[str, str],
    dotenv_path: Path | None,
    overrides: Mapping[str, str],
    *,
    known: Set[str],
    prefix: str,
) -> tuple[dict[str, Given], list[str]]:
    """The text that counts for each known variable that was given, and warnings about unknown ones.

    Raises SettingsError for a `.env` file that cannot be read. One that does not exist is no error.
    """
    from_file: dict[str, str] = {}
    if dotenv_path is not None and dotenv_path.exists():
        try:
            from_file = read_dotenv(dotenv_path)
        except DotenvError as error:
            raise SettingsError(str(error)) from error
    found: dict[str, Given] = {}
    found |= {
        name: Given(f"{name} (in {dotenv_path})", text) for name, text in from_file.items() if text
    }
    found |= {name: Given(name, text) for name, text in environ.items() if text}
    # A flag was typed for this run: an empty one is no "not given" but wrong.
    found |= {
        name: Given(f"{_flag(name, prefix)} ({name})", text) for name, text in overrides.items()
    }
    warnings = [
        _unknown(name, where, known, prefix)
        for names, where in ((environ, "the environment"), (from_file, str(dotenv_path)))
        for name in sorted(names)
        if name.startswith(prefix) and name not in known and not _is_foreign(name, prefix)
    ]
    return {name: given for name, given in found.items() if name in known}, warnings


def read_secret_file(variable: str, path: Path) -> str:
    """The file's text without the line end that editors leave. Raises SettingsError."""
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise SettingsError(f'{variable}: "{path}" cannot be read: {error.strerror}') from error
    except UnicodeDecodeError:
        raise SettingsError(f'{variable}: "{path}" is not UTF-8 text') from None
    if not text or not text.isprintable():
        raise SettingsError(f'{variable}: "{path}" does not hold one line of text')
    return text


def _unknown(name: str, where: str, known: Set[str], prefix: str) -> str:
    # Without the prefix, which all have in common: with it, any two names are alike.
    rest = [variable.removeprefix(prefix) for variable in known]
    close = difflib.get_close_matches(name.removeprefix(prefix), rest, n=1, cutoff=0.7)
    advice = f"did you mean {prefix}{close[0]}?" if close else "it has no effect"
    return f"{name} (in {where}) is no setting: {advice}"


def _is_foreign(name: str, prefix: str) -> bool:
    """Variables of the tests and of Kubernetes are nobody's typing errors."""
    return name.startswith(prefix + "TEST_") or _SERVICE_LINK.fullmatch(name) is not None


def _flag(variable: str, prefix: str) -> str:
    return "--" + variable.removeprefix(prefix).lower().replace("_", "-")


def _shown(text: str) -> str:
    text = redact_url(text)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    # repr's escapes keep a line break in a value from making two lines of the message.
    return repr(text)[1:-1]
