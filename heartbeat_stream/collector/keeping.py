"""The spool with the doubts about what is in it: what Kafka acknowledged late is not sent again."""

import asyncio
from typing import NamedTuple

from heartbeat_stream.collector.intake import Piece
from heartbeat_stream.collector.report import Report, decode_report, encode_report
from heartbeat_stream.collector.spool import Entry, Spool, SpoolFull

__all__ = ["Keeper", "Kept", "SpoolFull"]


class Kept(NamedTuple):
    """A report in the spool. ``sent``: Kafka has it after all."""

    entry: Entry
    report: Report
    sent: bool


class Keeper:
    """Puts reports into a spool, and takes them out in order."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self._doubts: dict[tuple[int, int], asyncio.Task[bool]] = {}

    async def keep(self, report: Report) -> None:
        """Keep a whole report. Raises :class:`SpoolFull`."""
        await self.spool.append(encode_report(report))

    async def keep_pieces(self, report: Report, pieces: list[Piece]) -> None:
        """Keep what Kafka has not acknowledged. Raises :class:`SpoolFull`, after trying all."""
        full: SpoolFull | None = None
        for piece in pieces:
            try:
                place = await self.spool.append(encode_report(piece.report(report)))
            except SpoolFull as error:
                full = error
                continue
            if piece.doubt is not None:
                self._doubts[place] = piece.doubt
        if full is not None:
            raise full

    async def next(self) -> Kept | None:
        """The oldest report, once it is known whether Kafka has it; None where there is none."""
        entry = await self.spool.next()
        if entry is None:
            return None
        doubt = self._doubts.get((entry.segment, entry.start))
        sent = doubt is not None and await asyncio.shield(doubt)
        return Kept(entry, decode_report(entry.payload), sent)

    async def done(self, kept: Kept) -> None:
        """It is dealt with."""
        self._doubts.pop((kept.entry.segment, kept.entry.start), None)
        await self.spool.done(kept.entry)
