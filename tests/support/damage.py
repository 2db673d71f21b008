"""What may happen to a RocksDB database while nobody has it open."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from rocksdict import Options, Rdict

__all__ = ["DAMAGES", "Damage", "garbage_in_log", "move_into_ssts"]

Damage = Callable[[Path], None]


def truncated_sst(database: Path) -> None:
    for sst in database.glob("*.sst"):
        os.truncate(sst, sst.stat().st_size // 2)


def garbage_in_sst(database: Path) -> None:
    for sst in database.glob("*.sst"):
        with sst.open("r+b") as file:
            file.seek(sst.stat().st_size // 4)
            file.write(random.Random(4).randbytes(sst.stat().st_size // 4))


def current_missing(database: Path) -> None:
    (database / "CURRENT").unlink()


def current_empty(database: Path) -> None:
    (database / "CURRENT").write_bytes(b"")


def manifest_missing(database: Path) -> None:
    for manifest in database.glob("MANIFEST-*"):
        manifest.unlink()


def half_of_the_files(database: Path) -> None:
    for file in sorted(database.iterdir())[::2]:
        file.unlink()


def garbage_in_log(database: Path) -> None:
    """The write-ahead log: what came behind the garbage is lost, what came before it is not."""
    for log in database.glob("*.log"):
        size = log.stat().st_size
        with log.open("r+b") as file:
            file.seek(size // 2)
            file.write(random.Random(4).randbytes(size // 4))


def of_another_application(database: Path) -> None:
    shutil.rmtree(database)
    other = Rdict(str(database))
    other["7:101"] = {"not": "ours"}
    other[b"\0position"] = b"\x80\x04neither"
    for number in range(1_000):
        other[f"{number}"] = number
    other.close()


def keys_of(store: Rdict) -> list[bytes]:
    return [key for key in store.keys() if isinstance(key, bytes)]  # noqa: SIM118


def of_another_version(database: Path) -> None:
    store = Rdict(str(database), options=Options(raw_mode=True))
    for key in keys_of(store):
        if key.startswith(b"\0"):
            store[key] = b'{"format":4711}'
        else:
            store[key] = b"\x04" + (store[key] or b"")
    store.flush()
    store.close()


def without_its_marks(database: Path) -> None:
    """Keys of somebody who knows nothing of positions."""
    store = Rdict(str(database), options=Options(raw_mode=True))
    for key in keys_of(store):
        if key.startswith(b"\0"):
            del store[key]
        else:
            store[key] = b"\x04" + (store[key] or b"")
    store.flush()
    store.close()


DAMAGES: list[Damage] = [
    truncated_sst,
    garbage_in_sst,
    current_missing,
    current_empty,
    manifest_missing,
    half_of_the_files,
    garbage_in_log,
    of_another_application,
    of_another_version,
    without_its_marks,
]


def move_into_ssts(database: Path) -> None:
    """Write out what is in the write-ahead log, and put half of it into the log once more."""
    store = Rdict(str(database), options=Options(raw_mode=True))
    store.flush()
    for key in keys_of(store)[::2]:
        store[key] = store[key]
    store.close()
    assert list(database.glob("*.sst"))
