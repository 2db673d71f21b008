"""What a job has put out and not sent yet: on lanes at once, or held for a transaction."""

from collections.abc import Sequence

from faust.types import TP

from heartbeat_stream.streaming.checkpoint import Delta
from heartbeat_stream.streaming.producer import OutRecord
from heartbeat_stream.streaming.transactions import Parcel

__all__ = ["PartitionUnit", "Waiting"]


class Waiting:
    """Outputs that wait for a checkpoint's transaction, by the partition that caused them."""

    def __init__(self) -> None:
        self._by_cause: dict[TP, dict[tuple[str, int], list[OutRecord]]] = {}
        self.count = 0

    def add(self, cause: TP, outgoing: dict[tuple[str, int], list[OutRecord]]) -> None:
        """Behind what the same partition has caused before."""
        waiting = self._by_cause.setdefault(cause, {})
        for where, records in outgoing.items():
            waiting.setdefault(where, []).extend(records)
            self.count += len(records)

    def take(self, cause: TP) -> list[Parcel]:
        """What a partition has caused, no longer held here."""
        waiting = self._by_cause.pop(cause, {})
        self.count -= sum(map(len, waiting.values()))
        return [(topic, partition, records) for (topic, partition), records in waiting.items()]

    def give_back(self, cause: TP, parcels: Sequence[Parcel]) -> None:
        """Before what it has caused since."""
        later = self.take(cause)
        for topic, partition, records in [*parcels, *later]:
            self.add(cause, {(topic, partition): list(records)})

    @property
    def causes(self) -> list[TP]:
        return list(self._by_cause)


class PartitionUnit:
    """What one partition of a topic has caused until a checkpoint."""

    def __init__(self, tp: TP, waiting: Waiting, deltas: Sequence[Delta]) -> None:
        self.tp = tp
        self.parcels = waiting.take(tp)
        self.deltas = deltas
        self._waiting = waiting

    def undo(self) -> None:
        for delta in self.deltas:
            delta.undo()
        self._waiting.give_back(self.tp, self.parcels)
