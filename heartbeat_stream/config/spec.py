"""What is known about one setting, and how to declare it as a field of a dataclass."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

from heartbeat_stream.config.kinds import Kind
from heartbeat_stream.config.sources import Given, SettingsError

PREFIX = "HEARTBEAT_"

T = TypeVar("T")


@dataclass(frozen=True)
class Spec:
    """One setting as users see it."""

    field: str
    default: str
    kind: Kind[Any]
    meaning: str
    group: str
    secret: bool
    shown_default: str
    advanced: bool

    @property
    def variable(self) -> str:
        """The environment variable: `HEARTBEAT_WEB_PORT`."""
        return PREFIX + self.field.upper()

    @property
    def flag(self) -> str:
        """The flag of the command line: `--web-port`."""
        return "--" + self.field.replace("_", "-")

    def parse(self, given: Given) -> Any:
        """The value that the text means. Raises SettingsError."""
        try:
            return self.kind.parse(given.text)
        except ValueError:
            raise SettingsError.of(given, self.kind.wants, secret=self.secret) from None


@dataclass(frozen=True)
class Section:
    """Settings that belong together: calling it declares one as a field."""

    group: str

    def __call__(
        self,
        default: str,
        kind: Kind[T],
        meaning: str,
        *,
        shown_default: str | None = None,
        secret: bool = False,
        advanced: bool = False,
    ) -> T:
        """Declare a setting. `advanced`: left out of a command's `--help`, the reference has it."""
        about = {
            "default": default,
            "kind": kind,
            "meaning": meaning,
            "group": self.group,
            "secret": secret,
            "shown_default": default if shown_default is None else shown_default,
            "advanced": advanced,
        }
        field: Any = dataclasses.field(
            default_factory=lambda: kind.parse(default), metadata={"setting": about}
        )
        return field  # type: ignore[no-any-return]


def specs_of(settings_class: type) -> tuple[Spec, ...]:
    """The settings that a dataclass declares, in their order."""
    return tuple(
        Spec(field.name, **field.metadata["setting"])
        for field in dataclasses.fields(settings_class)
        if "setting" in field.metadata
    )
