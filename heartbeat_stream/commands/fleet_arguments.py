"""How large a simulated fleet is: the same arguments for `demo` and `simulate`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from heartbeat_stream.commands import CommandError


def add_fleet_arguments(parser: argparse.ArgumentParser, *, seconds: int, rate: int) -> None:
    """`seconds` and `rate` are the defaults."""
    for flag, read, default, meaning in (
        ("--seconds", number(0.1, 864_000), seconds, "how long the fleet sends"),
        ("--hotels", whole(1, 30_000), 20, "hotels"),
        ("--rooms", whole(1, 100_000), 100, "rooms of a hotel"),
        ("--rate", number(0.1, 1_000_000), rate, "heartbeats, or records of another job, a second"),
        ("--seed", whole(0, 2**63 - 1), 1, "the same seed makes the same fleet"),
    ):
        parser.add_argument(
            flag, type=read, default=default, metavar="N", help=f"{meaning}; default: {default}"
        )


def add_job_argument(parser: argparse.ArgumentParser) -> None:
    """Which job's traffic."""
    parser.add_argument(
        "--job",
        choices=("heartbeats", "market", "messages", "tracking"),
        default="heartbeats",
        help="whose traffic; default: heartbeats. --hotels and --rooms are the heartbeats' alone",
    )


def check_fleet_size(args: argparse.Namespace) -> None:
    """Raise CommandError where each number is right and all of the rooms are too many."""
    from heartbeat_stream.local.fleet_rooms import ROOMS_MAX

    rooms = args.hotels * args.rooms
    if rooms > ROOMS_MAX:
        raise CommandError(
            f"{args.hotels} hotels with {args.rooms} rooms are {rooms:,} rooms, and a fleet has at "
            f"most {ROOMS_MAX:,}: take fewer --hotels or --rooms"
        )


def whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(
                f'"{text}" is wrong: want a whole number from {low} to {high}'
            )
        return int(text)

    return read


def number(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1
        if not low <= value <= high:  # also turns away NaN
            raise argparse.ArgumentTypeError(
                f'"{text}" is wrong: want a number from {low:g} to {high:g}'
            )
        return value

    return read
