"""The settings in two forms for people: `.env.example` and the page of the configuration reference.

`make reference` writes both into the repository's files; a test fails where they are out of date.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from heartbeat_stream.config.spec import Spec
from heartbeat_stream.settings import SPECS

_ENV_HEAD = """\
# Settings of heartbeat-stream. Copy this file to .env and change what should differ.
#
# A line that is commented out shows the default. Environment variables count before this file, and
# flags before both. docs/configuration.md says more.
"""

_PAGE_HEAD = """\
# Configuration

<!-- Made from heartbeat_stream/settings.py by `make reference`. -->

Each setting is an environment variable, or a line of a `.env` file in the working directory
(another one: `--env-file FILE`). Where a command takes it, it is a flag as well:
`HEARTBEAT_WEB_PORT` is `--web-port`. The flag counts before the variable, and that before the file.
An empty variable counts as not given.

A wrong value stops the command with exit code 2 and a line that names the variable, the value and
what would be right. A variable that begins with `HEARTBEAT_` and is no setting is named in a
warning.

Passwords have no flag, since everybody on a machine can see the arguments of its processes; for
the same reason a database URL with a password in it belongs in the environment or in a file.
"""

_TABLE_HEAD = "| variable | default | values | meaning |\n| --- | --- | --- | --- |\n"


def env_example() -> str:
    """The text of `.env.example`: every setting, commented out, with its default."""
    parts = [_ENV_HEAD]
    for group, specs in _groups():
        parts.append(f"\n# --- {group} ---\n")
        for spec in specs:
            comment = textwrap.fill(spec.meaning, 98, initial_indent="# ", subsequent_indent="# ")
            parts.append(f"\n{comment}\n#{spec.variable}={spec.default}\n")
    return "".join(parts)


def configuration_page() -> str:
    """The text of `docs/configuration.md`."""
    parts = [_PAGE_HEAD]
    for group, specs in _groups():
        parts.append(f"\n## {group}\n\n{_TABLE_HEAD}")
        parts += [_row(spec) for spec in specs]
    return "".join(parts)


def _row(spec: Spec) -> str:
    if spec.shown_default == spec.default:
        default = f"`{spec.default}`" if spec.default else "none"
    else:
        value, _, remark = spec.shown_default.partition(" ")
        default = f"`{value}` {remark}" if value == spec.default else spec.shown_default
    cells = (f"`{spec.variable}`", default, spec.kind.wants, spec.meaning)
    return f"| {' | '.join(_cell(cell) for cell in cells)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _groups() -> Iterator[tuple[str, list[Spec]]]:
    for group, specs in groupby(SPECS, key=lambda spec: spec.group):
        yield group, list(specs)


def write(root: Path) -> None:
    """Bring the two files below `root` up to date."""
    (root / ".env.example").write_text(env_example(), encoding="utf-8")
    (root / "docs").mkdir(exist_ok=True)
    (root / "docs" / "configuration.md").write_text(configuration_page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
