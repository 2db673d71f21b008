"""The parts of the benchmarks, as `--part` names them. Imports nothing: `--help` lists them."""

__all__ = ["PARTS"]

PARTS = {
    "keyed": "one worker on a keyed source, rooms drawn at random",
    "unkeyed": "the same on a source without keys: both hops in one worker",
    "hot": "keyed, and ten rooms have nine of ten heartbeats",
    "rooms": "keyed, 10,000 rooms and 1,000,000 rooms in turn",
    "cooldown": "keyed, and all rooms are in their cooldown",
    "slow-database": "keyed, and each statement takes 50 ms longer",
    "peers": "other frameworks, on the topic of keyed (make bench-peers installs them)",
    "upsert": "rows per second of the sink beside PostgreSQL's COPY",
    "printing": "the message filter, from arrival to print, at 5,000 texts/s",
    "latency": "due until in the database, at 30,000 heartbeats/s; stalls of the event loop",
    "market": "market messages with duplicates, three layers on: keyed and unkeyed source",
    "state": "memory of pending rooms, and recovery",
    "start": "start to ready on an empty state",
}
