"""The configuration of the jobs that judge messages: one TOML file, read and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from heartbeat_stream.core.identity.rules import JobRules

__all__ = ["JobConfig", "load_job_config"]


@dataclass(frozen=True)
class JobConfig:
    """What the file declares, by job: ``config.jobs["market"]``."""

    jobs: dict[str, JobRules] = field(default_factory=dict)


def load_job_config(path: Path | None) -> JobConfig:
    """The file's jobs, and the built-in ones for those that it does not mention.

    None: the built-in ones alone. Raises
    :class:`~heartbeat_stream.config.sources.SettingsError`, one line that names the file, the key
    and what would be right.
    """
    raise NotImplementedError
