"""Topics that are deleted under a running worker.

Neither Faust nor aiokafka tells of it: what was to be written waits, what was to be read does not
come, and a group that joins anew simply has no partitions. So a worker would be up, and idle, for
ever. Looked for only while something is amiss, since it takes a request for all topics.
"""

import asyncio
from collections.abc import Callable, Sequence

from aiokafka.errors import KafkaError

from heartbeat_stream.settings import Settings
from heartbeat_stream.streaming.topic_admin import kafka_admin

__all__ = ["TopicGone", "until_a_topic_is_gone"]

_LOOK_S = 2.0


class TopicGone(Exception):
    """A topic that the worker reads or writes does not exist any more."""

    def __init__(self, topics: Sequence[str]) -> None:
        super().__init__(
            f"the topic {', '.join(topics)} does not exist any more, or must not be seen: create "
            "it with heartbeat-stream init, or allow Describe, and start the worker again"
        )


async def until_a_topic_is_gone(
    settings: Settings, topics: Sequence[str], amiss: Callable[[], bool]
) -> TopicGone:
    """Return once a broker has said twice in a row that one of these topics is not there.

    Brokers that cannot be asked say nothing. ``amiss`` tells whether it is time to ask.
    """
    before: set[str] = set()
    while True:
        await asyncio.sleep(_LOOK_S)
        gone: set[str] = set()
        if before or amiss():
            gone = set(topics) - await _existing(settings, topics)
        if gone & before:
            return TopicGone(sorted(gone & before))
        before = gone


async def _existing(settings: Settings, topics: Sequence[str]) -> set[str]:
    """Those that exist; all of them where nobody can tell."""
    try:
        async with kafka_admin(settings) as admin:
            return set(await admin.list_topics())
    except (KafkaError, OSError):
        return set(topics)
