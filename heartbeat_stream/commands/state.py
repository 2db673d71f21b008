"""Look at what the tables hold of single rooms or of all, and take a room out of them. Read from
the changelogs, which are as new as the workers' last checkpoint, or from the workers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

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
    reader,
    run_subcommand,
)
from heartbeat_stream.config.flags import fields
from heartbeat_stream.config.urls import worker_address
from heartbeat_stream.recovery.words import number_of
from heartbeat_stream.settings import Settings

if TYPE_CHECKING:
    from heartbeat_stream.recovery.exporting import Record

NAME = "state"
HELP = "look at the tables, and take a room out of them"
EXAMPLE = """\
heartbeat-stream state get 1309 大会议室
heartbeat-stream state export --format csv --output rooms.csv"""
SETTINGS = ()
QUIET = True

_READING = (*fields("Kafka", "Kafka security"), "web_token_file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subcommands(parser, SUBCOMMANDS)


def run(args: argparse.Namespace, settings: Settings) -> int:
    return run_subcommand(args, settings)


def _room_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hotel", type=whole(0, 32_767), metavar="HOTEL")
    parser.add_argument("room", metavar="ROOM", help="as it is: case, spaces and all")


# -- get -----------------------------------------------------------------------------------------


def _url_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        type=reader(worker_address),
        help="ask the workers, any by its HEARTBEAT_WEB_URL, instead of the changelogs",
    )


def _get_arguments(parser: argparse.ArgumentParser) -> None:
    _room_arguments(parser)
    _url_argument(parser)


def _get(args: argparse.Namespace, settings: Settings) -> int:
    with ProgressLine() as line:
        room = run_reported(_look_up(args, settings, line), settings)
    print(json.dumps(room, ensure_ascii=False, indent=1))
    return 0


async def _look_up(args: argparse.Namespace, settings: Settings, line: ProgressLine) -> Record:
    from heartbeat_stream.recovery.exporting import as_record
    from heartbeat_stream.recovery.rooms import find_room
    from heartbeat_stream.recovery.worker_views import ask_for_room

    if args.url is not None:
        return await ask_for_room(settings, args.url, args.hotel, args.room)
    return as_record(await find_room(settings, args.hotel, args.room, line.show))


# -- list and export -----------------------------------------------------------------------------


def _choice_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hotel", type=whole(0, 32_767), metavar="N", help="this hotel's rooms")
    parser.add_argument(
        "--pending", action="store_true", help="rooms whose newest heartbeat is not written yet"
    )
    _url_argument(parser)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    _choice_arguments(parser)
    parser.add_argument(
        "--limit", type=whole(1, 2**31), metavar="N", help="end after so many rooms"
    )


def _parts(
    args: argparse.Namespace, settings: Settings, line: ProgressLine
) -> AbstractAsyncContextManager[AsyncGenerator[Iterable[Record]]]:
    from heartbeat_stream.recovery.listing import Choice, list_rooms

    choice = Choice(args.hotel, args.pending)
    return aclosing(list_rooms(settings, choice, args.url, line.show))


def _list(args: argparse.Namespace, settings: Settings) -> int:
    with ProgressLine() as line:
        run_reported(_print_rooms(args, settings, line), settings)
    return 0


async def _print_rooms(args: argparse.Namespace, settings: Settings, line: ProgressLine) -> None:
    left = args.limit
    async with _parts(args, settings, line) as parts:
        async for rooms in parts:
            for room in islice(rooms, left):
                print(json.dumps(room, ensure_ascii=False))
                left = left and left - 1
            if left == 0:
                return


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    _choice_arguments(parser)
    parser.add_argument("--format", choices=("csv", "jsonl", "parquet"), required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")


def _export(args: argparse.Namespace, settings: Settings) -> int:
    with ProgressLine() as line:
        rooms = run_reported(_write_rooms(args, settings, line), settings)
    print(f"{number_of(rooms, 'room')} in {args.output}", file=sys.stderr)
    return 0


async def _write_rooms(args: argparse.Namespace, settings: Settings, line: ProgressLine) -> int:
    from heartbeat_stream.recovery.exporting import open_export

    count = 0
    with open_export(args.format, args.output) as write:
        async with _parts(args, settings, line) as parts:
            async for rooms in parts:
                count += write(rooms)
                line.show(f"{number_of(count, 'room')} written")
    return count


# -- forget --------------------------------------------------------------------------------------


def _forget_arguments(parser: argparse.ArgumentParser) -> None:
    _room_arguments(parser)
    parser.add_argument("--row", action="store_true", help="delete its row in the database, too")
    add_recovery_arguments(parser)


def _forget(args: argparse.Namespace, settings: Settings) -> int:
    from heartbeat_stream.recovery.rooms import Forgetting

    operation = Forgetting(settings, args.hotel, args.room, with_row=args.row, dry_run=args.dry_run)
    return carry_out(operation, args, settings)


SUBCOMMANDS = (
    Subcommand(
        "get",
        "print what is known of one room",
        "A JSON object; times are milliseconds since 1970.",
        "heartbeat-stream state get 1309 大会议室 --url http://127.0.0.1:6066",
        _READING,
        _get_arguments,
        _get,
    ),
    Subcommand(
        "list",
        "print all rooms, a line of JSON for each",
        "From the changelogs ordered by partition, and within one by key; from workers by key.",
        "heartbeat-stream state list --hotel 1309 --pending",
        _READING,
        _list_arguments,
        _list,
    ),
    Subcommand(
        "export",
        "write all rooms into a file",
        'CSV, JSON lines, or Parquet (needs the extra "parquet"). The file is there once it is\n'
        "whole.",
        "heartbeat-stream state export --format parquet --output rooms.parquet",
        _READING,
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
