"""The self-test of tracking, as it is typed, against workers and collectors that run."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest

from tests.support.brokers import on_embedded
from tests.support.command import Done, run_command, start_command
from tests.support.door import PATIENT, open_door
from tests.support.selftest import agrees_at_the_door, as_wanted, numbers
from tests.support.tracking import prepare_tracking, stored
from tests.support.world import World

pytestmark = on_embedded


@pytest.mark.parametrize("policy", ["mark", "drop"])
async def test_behind_kafka(world: World, policy: str) -> None:
    await prepare_tracking(world, tracking_policy=policy)
    world.start_worker()
    done = await run_command(world, "selftest", "tracking")
    assert numbers(done) == as_wanted(policy)
    assert done.out.splitlines()[-1] == "all rows are as they should be"
    again = await run_command(world, "selftest", "tracking")
    assert numbers(again) == as_wanted(policy), "runs do not meet"
    rows = await stored(world)
    assert {row["project"] for row in rows} == {"heartbeat-stream-selftest"}
    assert {row["remark"] for row in rows} <= {"selftest", "du-selftest"}


@pytest.mark.parametrize(
    ("policy", "store"), [("mark", "memory"), ("drop", "memory"), ("mark", "postgres")]
)
async def test_at_the_door(world: World, policy: str, store: str) -> None:
    await agrees_at_the_door(world, policy, collect_store=store)


async def test_through_a_collector_that_leaves_it_to_the_job(world: World) -> None:
    await prepare_tracking(world, **PATIENT)
    world.start_worker()
    async with open_door(world.settings) as door:
        address = door.url.removeprefix("http://")
        done = await run_command(world, "selftest", "tracking", "--url", address)
    assert numbers(done) == as_wanted("mark")


async def test_a_system_that_does_otherwise(world: World) -> None:
    await prepare_tracking(world, tracking_policy="mark")
    await world.start_worker().ready()
    words = ("selftest", "tracking", "--seconds", "60")
    failed = await failing(world, *words, tracking_policy="drop")
    assert "the rows are those of the policy mark" in failed.err
    assert "WRONG" in failed.out
    assert numbers(failed)["repeated"] == [62, 20, 62, 0, 42]

    async with world.table.connect() as connection:
        await connection.execute(f"DROP TABLE {world.settings.tracking_table} CASCADE")
    gone = await failing(world, *words)
    assert re.search("cannot do it .*does not exist", gone.err)


async def failing(world: World, *words: str, **environment: object) -> Done:
    """What it says and ends with; how far it has come it may say before, where it takes long."""
    process = await start_command(world, *words, **environment)
    out, err = await process.communicate()
    assert process.returncode == 1
    done = Done(1, out.decode(), err.decode().splitlines()[-1])
    assert "Traceback" not in err.decode()
    assert done.err.startswith("heartbeat-stream selftest: ")
    return done


async def test_what_is_in_its_way_is_one_line(world: World) -> None:
    await prepare_tracking(world)
    words = ("selftest", "tracking", "--seconds", "0.5")
    alone = await failing(world, *words)
    assert "is a worker running with HEARTBEAT_JOBS=tracking" in alone.err
    assert "WRONG" in alone.out
    nobody = await failing(world, *words, "--url", "http://127.0.0.1:1")
    assert "no collector answers at http://127.0.0.1:1 " in nobody.err
    no_topic = await failing(world, *words, tracking_topic="nowhere")
    assert "there is no topic nowhere" in no_topic.err
    async with _no_collector() as url:
        other = await failing(world, *words, "--url", url)
    assert "answers 404 to a report" in other.err


@contextlib.asynccontextmanager
async def _no_collector():  # type: ignore[no-untyped-def]
    """Something else that speaks HTTP."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}"
