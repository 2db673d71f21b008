"""What a starting worker waits for: the brokers, and the topics that its jobs need."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiokafka.errors import KafkaError

from heartbeat_stream.commands import CommandError
from heartbeat_stream.complaints import Complaints
from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.diagnosis import nobody_answers, why_unreachable
from heartbeat_stream.streaming.permissions import denied_to_worker, describe_permissions
from heartbeat_stream.streaming.topic_admin import (
    TopicError,
    describe_topics,
    ensure_topics,
    kafka_admin,
)
from heartbeat_stream.streaming.topics import JobTopics, TopicSpec, TopicState, all_topics

__all__ = ["Prepared", "prepare_topics"]

logger = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.5


@dataclass(frozen=True)
class Prepared:
    """How many partitions there are."""

    of_job: Mapping[str, int]
    """Of each job's tables, and so of the topic that feeds them."""
    of_topic: Mapping[str, int]
    """Of each topic that ``init`` creates."""


async def prepare_topics(settings: Settings, jobs: Sequence[JobTopics]) -> Prepared:
    """Wait for the brokers and the topics, and create the internal ones.

    Raises :class:`CommandError` where that takes too long, or a topic is not fit.
    """
    complaints = Complaints(logger)
    missing = nobody_answers(settings)
    try:
        async with asyncio.timeout(settings.startup_timeout_ms / 1000):
            while True:
                try:
                    found = await _look(settings, jobs)
                except (KafkaError, OSError) as exc:
                    missing = await why_unreachable(settings)
                    complaints.warning("%s (%r): waiting", missing, exc)
                else:
                    if isinstance(found, Prepared):
                        return found
                    missing = found
                    complaints.warning("%s: waiting", missing)
                await asyncio.sleep(_ASK_AGAIN_S)
    except TimeoutError:
        raise CommandError(f"{missing} (given up after {settings.startup_timeout_ms} ms)") from None


async def _look(settings: Settings, jobs: Sequence[JobTopics]) -> Prepared | str:
    """What there is, or what is missing."""
    async with kafka_admin(settings) as admin:
        names = [spec.name for spec in all_topics(settings, {}, jobs)]
        permissions = await describe_permissions(admin, names, settings.app_id)
        if permissions is not None and (denied := denied_to_worker(settings, permissions, jobs)):
            raise CommandError(denied[0])
        existing = await describe_topics(admin, names)
        named = {name: variable for job in jobs for name, variable in job.named().items()}
        named[settings.dead_letter_topic] = "HEARTBEAT_DEAD_LETTER_TOPIC"
        for name, variable in named.items():
            if name not in existing:
                return (
                    f"the topic {name} does not exist: create it with `heartbeat-stream init`, or "
                    f"set {variable}"
                )
        wanted = {job.job: job.internal_beside(existing) for job in jobs}
        try:
            specs = [spec for internal in wanted.values() for spec in internal]
            for name in await ensure_topics(admin, specs):
                logger.info("created topic %s", name)
        except TopicError as exc:
            raise CommandError(str(exc)) from exc
        for job in jobs:
            _check_partitions(job, wanted[job.job], existing)
        return Prepared(
            {name: internal[-1].partitions for name, internal in wanted.items()},
            {name: existing[name].partitions for name in named},
        )


def _check_partitions(
    job: JobTopics, wanted: Sequence[TopicSpec], existing: Mapping[str, TopicState]
) -> None:
    for spec in wanted:
        have = existing.get(spec.name)
        if have is not None and have.partitions != spec.partitions:
            raise CommandError(
                f"the topic {job.state} has {spec.partitions} partitions, "
                f"but {spec.name} has {have.partitions}: a key's state would be looked "
                "for in the wrong partition. Set another HEARTBEAT_APP_ID, whose tables "
                "are then rebuilt from the topic"
            )
