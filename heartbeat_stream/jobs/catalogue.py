"""The jobs that the settings name."""

from collections.abc import Iterator
from importlib import import_module
from typing import cast

from heartbeat_stream.jobs.job import JobModule
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topics import JobTopics

__all__ = ["job_module", "jobs_topics"]


def job_module(name: str) -> JobModule:
    """The module of a job: imported when it is asked for, so that others need not be there."""
    return cast(JobModule, import_module(f"heartbeat_stream.jobs.{name}"))


def _topics(settings: Settings) -> Iterator[JobTopics]:
    for name in settings.jobs:
        yield job_module(name).topics(settings)


def jobs_topics(settings: Settings) -> list[JobTopics]:
    """What each job that is configured reads, keeps and writes. Raises SettingsError."""
    return list(_topics(settings))
