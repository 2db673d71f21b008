"""The configuration of the jobs that judge messages: one TOML file, read and checked.

``jobs.toml`` beside this module is what holds for a job that the file does not mention, and an
example. docs/duplicates.md explains every key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from heartbeat_stream.config.channels import channel_rules
from heartbeat_stream.config.sources import SettingsError
from heartbeat_stream.config.toml_table import TomlTable
from heartbeat_stream.core.identity.rules import JobRules

__all__ = ["JUDGED_JOBS", "JobConfig", "load_job_config", "parse_job_config"]

JUDGED_JOBS = ("market", "tracking")
"""The jobs whose messages are judged by such rules."""

_BUILT_IN = "jobs.toml"


@dataclass(frozen=True)
class JobConfig:
    """What the file declares, by job: ``config.jobs["market"]``."""

    jobs: Mapping[str, JobRules]


def load_job_config(path: Path | None) -> JobConfig:
    """The file's jobs, and the built-in ones for those that it does not mention.

    None: the built-in ones alone. Raises SettingsError, one line that names the file, the key and
    what would be right.
    """
    built_in = files("heartbeat_stream.config").joinpath(_BUILT_IN).read_text("utf-8")
    jobs = dict(parse_job_config(built_in, _BUILT_IN).jobs)
    if path is not None:
        try:
            text = path.read_bytes().decode()
        except OSError as error:
            raise SettingsError(f'"{path}" cannot be read: {error.strerror}') from error
        except UnicodeDecodeError:
            raise SettingsError(f'"{path}" is not UTF-8 text') from None
        jobs |= parse_job_config(text, str(path)).jobs
    return JobConfig(jobs)


def parse_job_config(text: str, source: str) -> JobConfig:
    """What a file with this text declares. ``source`` is how errors call it."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{source}: not TOML: {error}") from None
    root = TomlTable(source, "", document)
    jobs = {}
    for name in JUDGED_JOBS:
        table = root.table(name)
        if table is not None:
            jobs[name] = _job(table)
    root.end()
    return JobConfig(jobs)


def _job(table: TomlTable) -> JobRules:
    channel_field = table.text("channel")
    scope = table.texts("scope")
    if not scope:
        raise table.error("scope", "want one field or more: it decides about the partition")
    channels = table.table("channels")
    table.end()
    by_name = channels.tables_by_name() if channels is not None else {}
    if not by_name:
        raise table.error("channels", 'want one or more, as in [market.channels.depth]; "*" is any')
    return JobRules(
        channel_field, scope, {name: channel_rules(each, scope) for name, each in by_name.items()}
    )
