"""`state get`, `state list` and `state export`: from the changelogs, and from a running worker."""

from __future__ import annotations

import csv
import json
from typing import Any

import pyarrow.parquet
import pytest

from heartbeat_stream.core.heartbeat import Heartbeat
from heartbeat_stream.recovery.exporting import COLUMNS
from tests.support.command import run_command
from tests.support.odd_rooms import ODD_ROOMS
from tests.support.oracle import Oracle, now_ms
from tests.support.wait import wait_until_async
from tests.support.world import World

pytestmark = pytest.mark.slow


def heartbeat_of(record: dict[str, Any]) -> Heartbeat:
    names = ("hotel_id", "room_id", "ts_ms", "device_id", "status")
    return Heartbeat(*(record[name] for name in names))


async def test_what_is_known_of_rooms(world: World) -> None:
    await world.prepare(cooldown_ms=600_000, web_token="t0ken-of-these-workers-0123456789")
    oracle = Oracle()
    worker = await world.start_worker().ready()
    heartbeats = [Heartbeat(7, room, now_ms(), '设备, "1"', 1) for room in ODD_ROOMS]
    heartbeats += [Heartbeat(8, f"{number}", now_ms()) for number in range(300)]
    await world.send(heartbeats, oracle=oracle)
    await oracle.matches(world.table)
    pending = Heartbeat(8, "5", now_ms(), "pending", -1)
    await world.send([pending], oracle=oracle)

    async def durable() -> bool:
        done = await run_command(world, "state", "list", "--pending")
        return [heartbeat_of(json.loads(line)) for line in done.out.splitlines()] == [pending]

    await wait_until_async(durable, 30, what="the pending room alone is listed as such")
    await lists_and_exports(world, oracle)

    url = f"http://127.0.0.1:{worker.port}"
    for room in ("西楼:茶室", "a//b/", "nobody"):
        known = (7, room) in oracle.newest
        from_changelog = await run_command(world, "state", "get", "7", room, code=not known)
        from_worker = await run_command(
            world, "state", "get", "7", room, "--url", url, code=not known
        )
        if known:
            found = json.loads(from_changelog.out)
            assert heartbeat_of(found) == oracle.newest[7, room]
            assert found["written_ts_ms"] == oracle.newest[7, room].ts_ms
            assert json.loads(from_worker.out).items() <= found.items()
            assert found.keys() - json.loads(from_worker.out).keys() == {"arrived_at"}
        else:
            assert "not know hotel 7" in from_changelog.err
            assert "not know hotel 7" in from_worker.err
    dashed = await run_command(world, "state", "get", "7", "--", "-1", code=1)
    assert "room -1" in dashed.err
    await asks_workers(world, oracle, url)
    away = await run_command(world, "state", "get", "7", "x", "--url", "http://127.0.0.1:1", code=1)
    assert "no worker answers at http://127.0.0.1:1" in away.err
    await worker.stopped()


async def asks_workers(world: World, oracle: Oracle, url: str) -> None:
    """A hotel has more rooms than they answer at once."""
    path = world.directory / "hotel.jsonl"
    export = ("state", "export", "--format", "jsonl", "--output", str(path), "--url", url)
    await run_command(world, *export, "--hotel", "8")
    found = [heartbeat_of(json.loads(line)) for line in path.read_text().splitlines()]
    assert len(found) == 300
    assert {one.room_id: one for one in found} == {
        room: one for (hotel, room), one in oracle.newest.items() if hotel == 8
    }
    listed = await run_command(world, "state", "list", "--hotel", "8", "--pending", "--url", url)
    assert [json.loads(line)["room_id"] for line in listed.out.splitlines()] == ["5"]
    # All hotels, from the address of the page.
    every = ("state", "export", "--format", "jsonl", "--output", str(path), "--url", f"{url}/ui/")
    await run_command(world, *every)
    rooms = [heartbeat_of(json.loads(line)) for line in path.read_text().splitlines()]
    assert len(rooms) == len(oracle.newest)
    assert {(one.hotel_id, one.room_id): one for one in rooms} == oracle.newest
    wrong = await run_command(world, "state", "list", "--url", "http://[", code=2)
    assert "want http://host:port" in wrong.err
    stranger = await run_command(
        world, "state", "list", "--hotel", "8", "--url", url, code=1, web_token=""
    )
    assert "set HEARTBEAT_WEB_TOKEN to theirs" in stranger.err
    short = url.removeprefix("http://")  # and so without a scheme
    wrong = await run_command(
        world, "state", "get", "8", "5", "--url", short, code=1, web_token="another-token-" * 3
    )
    assert "theirs is another one" in wrong.err


async def lists_and_exports(world: World, oracle: Oracle) -> None:
    listed = (await run_command(world, "state", "list", "--hotel", "7")).out.splitlines()
    records = [json.loads(line) for line in listed]
    assert {one["room_id"]: heartbeat_of(one) for one in records} == {
        room: one for (hotel, room), one in oracle.newest.items() if hotel == 7
    }
    assert len((await run_command(world, "state", "list", "--limit", "3")).out.splitlines()) == 3

    found: dict[str, list[dict[str, Any]]] = {}
    for form in ("csv", "jsonl", "parquet"):
        path = world.directory / f"rooms.{form}"
        done = await run_command(world, "state", "export", "--format", form, "--output", str(path))
        assert f"{len(oracle.newest)} rooms" in done.err
        if form == "csv":
            with path.open(encoding="utf-8", newline="") as lines:
                found[form] = list(csv.DictReader(lines))
        elif form == "jsonl":
            found[form] = [json.loads(line) for line in path.read_text().splitlines()]
        else:
            found[form] = pyarrow.parquet.read_table(path).to_pylist()
    assert found["jsonl"] == found["parquet"]
    texts = [
        {name: "" if value is None else str(value) for name, value in one.items()}
        for one in found["jsonl"]
    ]
    assert found["csv"] == texts
    assert all(tuple(one) == COLUMNS for one in found["jsonl"])
    assert {
        (one["hotel_id"], one["room_id"]): heartbeat_of(one) for one in found["jsonl"]
    } == oracle.newest
    refused = await run_command(
        world, "state", "export", "--format", "csv", "--output", "/nowhere/x.csv", code=1
    )
    assert "cannot write /nowhere/x.csv: No such file or directory" in refused.err


async def test_without_tables(world: World) -> None:
    await world.prepare()
    done = await run_command(world, "state", "list", code=1)
    assert f"there is no topic {world.changelog('latest')}" in done.err
