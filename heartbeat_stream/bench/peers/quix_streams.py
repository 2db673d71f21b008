"""Quix Streams with state: newest wins per key, in RocksDB, with a changelog topic."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from quixstreams import Application, State


def main() -> None:
    brokers, topic, messages, directory = sys.argv[1:]
    wanted = int(messages)
    app = Application(
        broker_address=brokers,
        consumer_group=f"quix-{topic}",
        auto_offset_reset="earliest",
        state_dir=f"{directory}/quix-state",
        commit_interval=5.0,
        loglevel="WARNING",
    )
    seen = 0
    started = cpu = 0.0

    def keep_newest(heartbeat: dict[str, Any], state: State) -> None:
        nonlocal seen, started, cpu
        if seen == 0:
            started, cpu = time.perf_counter(), time.process_time()
        seen += 1
        newest = state.get("newest")
        if newest is None or heartbeat["ts_ms"] > newest["ts_ms"]:
            state.set("newest", heartbeat)
        if seen == wanted:
            result = {
                "messages": seen,
                "seconds": time.perf_counter() - started,
                "cpu_seconds": time.process_time() - cpu,
            }
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
            app.stop()

    source = app.topic(topic, value_deserializer="json", key_deserializer="str")
    app.dataframe(source).update(keep_newest, stateful=True)
    app.run()


if __name__ == "__main__":
    main()
