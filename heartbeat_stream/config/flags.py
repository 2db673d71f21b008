"""Settings as flags of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from heartbeat_stream.config.spec import Spec
from heartbeat_stream.settings import BY_FIELD, SPECS

_DESTINATION = "setting:"


def fields(*groups: str) -> tuple[str, ...]:
    """The names of all settings of these groups."""
    found = tuple(spec.field for spec in SPECS if spec.group in groups)
    if len({BY_FIELD[field].group for field in found}) != len(groups):
        raise ValueError(f"no such group among {groups}")
    return found


def add_setting_flags(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Declare a flag for each of these settings, the advanced ones without a word in the help.

    A secret has none: arguments are seen by every user of the machine.
    """
    sections: dict[str, argparse._ArgumentGroup] = {}
    for spec in SPECS:
        if spec.field not in names or spec.secret:
            continue
        if spec.group not in sections:
            sections[spec.group] = parser.add_argument_group(f"settings: {spec.group}")
        sections[spec.group].add_argument(
            spec.flag,
            dest=_DESTINATION + spec.variable,
            metavar=_metavar(spec),
            help=argparse.SUPPRESS if spec.advanced else _help(spec),
        )


def given_flags(args: argparse.Namespace) -> dict[str, str]:
    """The text of each flag that was given, by variable."""
    return {
        name.removeprefix(_DESTINATION): text
        for name, text in vars(args).items()
        if name.startswith(_DESTINATION) and text is not None
    }


def _metavar(spec: Spec) -> str:
    if spec.field.endswith("_ms"):
        return "MS"
    return spec.kind.metavar


def _help(spec: Spec) -> str:
    text = f"{spec.meaning.removesuffix('.')}. {spec.variable}, default: {spec.shown_default}"
    return text.replace("%", "%%")
