"""Look at what the tables hold of single rooms or of all, and take a room out of them. Read from
the changelogs, which are as new as the workers' last checkpoint; or, a single room, from a worker.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heartbeat_stream.commands.fleet_arguments import whole
from heartbeat_stream.commands.progress_line import ProgressLine
from heartbeat_stream.commands.recovering import (
    add_recovery_arguments,
    carry_out,
    run_reported,
)
from heartbeat_stream.commands.subcommands import (
    Subcommand,
    add_subcommands,
    run_subcommand,
)
from heartbeat_stream.config.flags import fields
from heartbeat_stream.settings import Settings

if TYPE_CHECKING:
    from heartbeat_stream.recovery.tables import RoomState, TablePartition

NAME = "state"
HELP = "look at the tables, and take a room out of them"
EXAMPLE = """\
heartbeat-stream state get 1309 大会议室
heartbeat-stream state export --format csv --output rooms.csv"""
SETTINGS = ()
QUIET = True

_KAFKA = fields("Kafka", "Kafka security")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subcommands(parser, NAME, SUBCOMMANDS)


def run(args: argparse.Namespace, settings: Settings) -> int:
    return run_subcommand(args, settings)


def _room_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hotel", type=whole(0, 32_767), metavar="HOTEL")
    parser.add_argument("room", metavar="ROOM", help="as it is: case, spaces and all")


# -- get -----------------------------------------------------------------------------------------


def _get_arguments(parser: argparse.ArgumentParser) -> None:
    _room_arguments(parser)
    parser.add_argument(
        "--url", help="ask the worker with this HEARTBEAT_WEB_URL, instead of the changelogs"
    )


def _get(args: argparse.Namespace, settings: Settings) -> int:
    print(json.dumps(_look_up(args, settings), ensure_ascii=False, indent=1))
    return 0


def _look_up(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    from heartbeat_stream.recovery.exporting import as_record
    from heartbeat_stream.recovery.rooms import find_room
    from heartbeat_stream.recovery.worker_views import ask_worker

    if args.url is None:
        with ProgressLine() as line:
            room = find_room(settings, args.hotel, args.room, line.show)
            return as_record(run_reported(room, settings))
    latest, written = run_reported(ask_worker(args.url, args.hotel, args.room, {}), settings)
    written = written or {"at": None, "ts_ms": None}
    return {**latest, "written_at": written["at"], "written_ts_ms": written["ts_ms"]}


# -- list and export -----------------------------------------------------------------------------


def _filter_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hotel", type=whole(0, 32_767), metavar="N", help="this hotel's rooms")
    parser.add_argument(
        "--pending", action="store_true", help="rooms whose newest heartbeat is not written yet"
    )


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    _filter_arguments(parser)
    parser.add_argument(
        "--limit", type=whole(1, 2**31), metavar="N", help="end after so many rooms"
    )


def _chosen(partition: TablePartition, args: argparse.Namespace) -> Iterator[RoomState]:
    for room in partition.rooms():
        if args.hotel in (None, room.stored.hotel_id) and (room.pending or not args.pending):
            yield room


def _list(args: argparse.Namespace, settings: Settings) -> int:
    with ProgressLine() as line:
        run_reported(_print_rooms(args, settings, line), settings)
    return 0


async def _print_rooms(args: argparse.Namespace, settings: Settings, line: ProgressLine) -> None:
    from heartbeat_stream.recovery.exporting import as_record
    from heartbeat_stream.recovery.tables import read_tables

    count = 0
    async with aclosing(read_tables(settings, line.show)) as partitions:
        async for partition in partitions:
            for room in _chosen(partition, args):
                print(json.dumps(as_record(room), ensure_ascii=False))
                count += 1
                if count == args.limit:
                    return


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    _filter_arguments(parser)
    parser.add_argument("--format", choices=("csv", "jsonl", "parquet"), required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")


def _export(args: argparse.Namespace, settings: Settings) -> int:
    with ProgressLine() as line:
        rooms = run_reported(_write_rooms(args, settings, line), settings)
    print(f"{rooms:,} rooms in {args.output}", file=sys.stderr)
    return 0


async def _write_rooms(args: argparse.Namespace, settings: Settings, line: ProgressLine) -> int:
    from heartbeat_stream.recovery.exporting import open_export
    from heartbeat_stream.recovery.tables import read_tables

    count = 0
    with open_export(args.format, args.output) as write:
        async with aclosing(read_tables(settings, line.show)) as partitions:
            async for partition in partitions:
                count += write(_chosen(partition, args))
                line.show(f"{count:,} rooms written")
    return count


# -- forget --------------------------------------------------------------------------------------


def _forget_arguments(parser: argparse.ArgumentParser) -> None:
    _room_arguments(parser)
    parser.add_argument("--row", action="store_true", help="delete its row in the database, too")
    add_recovery_arguments(parser)


def _forget(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.recovery.rooms import Forgetting

    operation = Forgetting(settings, args.hotel, args.room, with_row=args.row)
    return carry_out(operation, args, settings)


SUBCOMMANDS = (
    Subcommand(
        "get",
        "print what is known of one room",
        "A JSON object; times are milliseconds since 1970.",
        "heartbeat-stream state get 1309 大会议室 --url http://127.0.0.1:6066",
        _KAFKA,
        _get_arguments,
        _get,
    ),
    Subcommand(
        "list",
        "print all rooms, a line of JSON for each",
        "Ordered by partition, and within one by key.",
        "heartbeat-stream state list --hotel 1309 --pending",
        _KAFKA,
        _list_arguments,
        _list,
    ),
    Subcommand(
        "export",
        "write all rooms into a file",
        'CSV, JSON lines, or Parquet (needs the extra "parquet"). The file is there once it is\n'
        "whole.",
        "heartbeat-stream state export --format parquet --output rooms.parquet",
        _KAFKA,
        _export_arguments,
        _export,
    ),
    Subcommand(
        "forget",
        "take a room out of the tables",
        "For one that a wrong clock has frozen: its newest heartbeat lies in the future, and\n"
        "every right one counts as older. No worker may run.",
        "heartbeat-stream state forget 7 101 --row",
        fields("Kafka", "Kafka security", "PostgreSQL"),
        _forget_arguments,
        _forget,
    ),
)
