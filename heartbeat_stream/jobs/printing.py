"""Where the message filter prints: lines, a topic, or rows of a table."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from heartbeat_stream.core.messages import Window
from heartbeat_stream.core.reasons import Rejected
from heartbeat_stream.database import postgres_settings
from heartbeat_stream.jobs.appending import Appender, Refuse
from heartbeat_stream.jobs.job import House
from heartbeat_stream.settings import Settings
from heartbeat_stream.sinks.json_statement import JsonStatement
from heartbeat_stream.sinks.lines import FileTarget, LineSink, StdoutTarget, Target
from heartbeat_stream.sinks.message_table import append_text_sql
from heartbeat_stream.sinks.table import Table
from heartbeat_stream.streaming.forwarding import Arrival, source_headers
from heartbeat_stream.streaming.producer import StampedRecord
from heartbeat_stream.streaming.topics import JobTopics

__all__ = ["Emit", "LinePrinter", "Printer", "TablePrinter", "TopicPrinter"]

#: Puts a record out to the output topic, to the partition of a key.
Emit = Callable[[bytes, StampedRecord], None]

#: Of a line that no record has caused, in the headers of a topic.
_NOWHERE: Final = -1


class Printer(ABC):
    """Takes what is printed, in order. What it has taken is settled by the next checkpoint."""

    @abstractmethod
    def text(self, arrival: Arrival, key: bytes) -> None:
        """Print a text as it came. Never waits. ``key``: that of its content."""

    @abstractmethod
    def told(self, line: bytes, window: Window, partition: int, version: int, key: bytes) -> None:
        """Print how often a text was suppressed in a window that has ended.

        ``version``: that of the last record of this content in this partition of the state.
        """

    def flush(self) -> None:  # noqa: B027
        """A slice of records has been decided about."""

    async def room(self) -> None:  # noqa: B027
        """Wait while too much is on its way."""

    def trouble(self) -> dict[str, str | None]:
        """What keeps it from printing, by name; None where nothing does."""
        return {}

    async def stop(self) -> None:  # noqa: B027
        """What is not settled by now is given up."""


class LinePrinter(Printer):
    """Lines of standard output, or of a file."""

    def __init__(self, house: House) -> None:
        self._lines: list[bytes] = []
        self._sink = LineSink(_target(house.settings))
        house.checkpointer.waits_for(self._sink.settled)

    def text(self, arrival: Arrival, key: bytes) -> None:
        self._lines.append(arrival.value)

    def told(self, line: bytes, window: Window, partition: int, version: int, key: bytes) -> None:
        self._lines.append(line)

    def flush(self) -> None:
        if self._lines:
            self._sink.put(self._lines)
            self._lines = []

    async def room(self) -> None:
        await self._sink.room()

    def trouble(self) -> dict[str, str | None]:
        return {"print_error": self._sink.last_error}

    async def stop(self) -> None:
        self._sink.stop()


def _target(settings: Settings) -> Target:
    if settings.messages_sink == "stdout":
        return StdoutTarget()
    return FileTarget(
        settings.messages_file, settings.messages_file_bytes, settings.messages_file_count
    )


class TopicPrinter(Printer):
    """Records of a topic, each with its key, its headers and its timestamp, and where it stood."""

    def __init__(self, source: str, emit: Emit) -> None:
        self._source = source
        self._emit = emit

    def text(self, arrival: Arrival, key: bytes) -> None:
        headers = (*arrival.headers, *source_headers(self._source, arrival))
        self._emit(key, StampedRecord(arrival.key, arrival.value, headers, arrival.at_ms))

    def told(self, line: bytes, window: Window, partition: int, version: int, key: bytes) -> None:
        origin = Arrival(None, line, [], _NOWHERE, _NOWHERE, window.printed_at_ms, version)
        self.text(origin, key)


class TablePrinter(Printer):
    """Rows of a table, each once: by where the text stood in the source.

    A line about suppressed texts stands under the topic of the state, at the last of them: a
    record that was printed has another place there.
    """

    def __init__(self, house: House, topics: JobTopics, refuse: Refuse) -> None:
        settings = house.settings
        sql = append_text_sql(Table.parse(settings.messages_table))
        statement = JsonStatement(postgres_settings(settings), sql)
        self._texts = Appender(statement, topics.source.name, refuse)
        self._told = Appender(statement, topics.state, _refused_before)
        self._waiting: dict[Appender, list[Arrival]] = {self._texts: [], self._told: []}
        for appender in self._waiting:
            house.checkpointer.waits_for(appender.settled)

    def text(self, arrival: Arrival, key: bytes) -> None:
        self._waiting[self._texts].append(arrival)

    def told(self, line: bytes, window: Window, partition: int, version: int, key: bytes) -> None:
        at_last = Arrival(None, line, [], partition, version, window.printed_at_ms, version)
        self._waiting[self._told].append(at_last)

    def flush(self) -> None:
        for appender, rows in self._waiting.items():
            if rows:
                appender.put(rows)
                self._waiting[appender] = []

    async def room(self) -> None:
        for appender in self._waiting:
            await appender.room()

    def trouble(self) -> dict[str, str | None]:
        return {"database_error": self._texts.last_error or self._told.last_error}

    async def stop(self) -> None:
        for appender in self._waiting:
            await appender.stop()


async def _refused_before(arrival: Arrival, why: Rejected) -> None:
    """The text that the line is about was refused when it was printed: that is a dead letter."""
