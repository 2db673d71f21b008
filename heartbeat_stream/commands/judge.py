"""Judge the messages of a file, or of standard input, as a worker would: one JSON object a line for
each verdict, with the layer and the reason, and a summary on standard error. No server is needed.
To try a configuration on a capture.

With --job market every line is a message. With --job messages every line is a text of the moment in
which it is read, or {"at": MILLISECONDS, "text": "..."}.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from heartbeat_stream.commands import CommandError
from heartbeat_stream.settings import Settings

if TYPE_CHECKING:
    from heartbeat_stream.commands.judging import Judging

NAME = "judge"
HELP = "judge the messages of a file: which are duplicates, and why"
EXAMPLE = "heartbeat-stream judge capture.jsonl --job market --job-config jobs.toml"
SETTINGS = ("job_config", "messages_window_ms")
QUIET = True

_STANDARD_INPUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="JSON lines; - is standard input")
    parser.add_argument("--job", choices=("market", "messages"), required=True, help="whose rules")


def run(args: argparse.Namespace, settings: Settings) -> int:
    judging = _judging(args, settings)
    if args.file == _STANDARD_INPUT:
        lines = _judge(sys.stdin.buffer, judging, live=True)
    else:
        try:
            with Path(args.file).open("rb") as file:
                lines = _judge(file, judging, live=False)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise CommandError(f'"{args.file}" cannot be read: {error.strerror}') from error
    print("\n".join(lines), file=sys.stderr)
    return 0


def _judging(args: argparse.Namespace, settings: Settings) -> Judging:
    from heartbeat_stream.commands.judging import MarketJudging, MessageJudging
    from heartbeat_stream.config.jobs import load_job_config

    if args.job == "messages":
        return MessageJudging(settings.messages_window_ms, lambda: time.time_ns() // 1_000_000)
    rules = load_job_config(settings.job_config).jobs[args.job]
    return MarketJudging(rules, args.file)


def _judge(file: Iterable[bytes], judging: Judging, live: bool) -> list[str]:
    """Print the verdicts as they are found, and return the summary."""
    from heartbeat_stream.core.reasons import Reason, Rejected

    judged = 0
    rejected = Counter[Reason]()
    for number, line in enumerate(file, 1):
        try:
            said = judging.take(number, line.rstrip(b"\r\n"))
        except Rejected as error:
            rejected[error.reason] += 1
            said = {"line": number, "verdict": "dead-letter", "reason": error.reason}
            said |= {"detail": error.detail}
        if said is not None:
            judged += 1
            print(json.dumps(said, ensure_ascii=False), flush=live)
    lines = [f"judged       {judged:,}", *judging.summary()]
    lines.append(f"dead letters {rejected.total():,}")
    return [*lines, *(f"  {reason}: {count:,}" for reason, count in rejected.most_common())]
