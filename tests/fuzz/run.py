"""Fuzzing with coverage guidance: ``python -m tests.fuzz.run decoder|canonical|routes --runs N``.

Needs atheris, which ``make fuzz`` installs. Ends with 0 when all inputs had a documented outcome;
otherwise with the input that had not, in a file beside which libFuzzer says what went wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

with atheris.instrument_imports(
    include=["heartbeat_stream.core", "heartbeat_stream.web", "faust.web", "aiohttp", "json"]
):
    import json  # noqa: F401  # the careful way leads through it

    from aiohttp import web  # noqa: F401

    from heartbeat_stream.local.stack import EmbeddedStack
    from heartbeat_stream.logs import is_worth_a_line
    from tests.fuzz import canonical, decoder, routes
    from tests.fuzz.inside import WorkerInside


class Broken(logging.Handler):
    """Remembers what was logged with a traceback: the answer alone does not always tell."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.addFilter(is_worth_a_line)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.records.append(self.format(record))


def fuzz(
    check: Callable[[bytes], None], seeds: list[bytes], dictionary: list[str], options: list[str]
) -> None:
    """Hand over to libFuzzer, which ends the process."""
    directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus = directory / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = directory / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in dictionary))
    print(f"inputs in {directory}", flush=True)  # noqa: T201
    atheris.Setup(
        [sys.argv[0], str(corpus), f"-dict={words}", f"-artifact_prefix={directory}/", *options],
        check,
    )
    atheris.Fuzz()


def _escaped(word: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word.encode("utf-8", "surrogateescape"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=["decoder", "canonical", "routes"])
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    options = [f"-runs={arguments.runs}", f"-seed={arguments.seed}", "-print_final_stats=1"]
    if arguments.target != "routes":
        target = decoder if arguments.target == "decoder" else canonical
        fuzz(
            target.check,
            target.seeds(),
            target.DICTIONARY,
            [*options, "-max_len=4096", "-timeout=10"],
        )
        return
    with EmbeddedStack() as stack:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        broken = Broken()
        logging.getLogger().addHandler(broken)
        worker = WorkerInside(stack, loop)
        loop.run_until_complete(worker.start())

        def check(request: bytes) -> None:
            # Most requests are well framed, or none would get any further than the parser.
            if not request.endswith(b"\r\n\r\n") and len(request) % 8:
                method, _, target = request.partition(b" ")
                request = routes.framed(
                    method.strip(b"\r\n") or b"GET", b"/" + target.translate(None, b"\r\n ")
                )
            exchange = routes.exchange(worker.port, request, patience_s=0.02)
            answer = loop.run_until_complete(exchange)
            routes.check(request, answer)
            assert not broken.records, (request, broken.records[0])

        try:
            fuzz(check, routes.seeds(), routes.DICTIONARY, [*options, "-max_len=12288"])
        finally:
            # libFuzzer ends the process: the servers' supervisors see to theirs.
            os._exit(1)


if __name__ == "__main__":
    main()
