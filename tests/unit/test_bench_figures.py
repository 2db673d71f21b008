"""Quantiles, ratios to goals, the table, and what is made of a run."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET

import pytest

from heartbeat_stream.bench.chart import chart
from heartbeat_stream.bench.due_times import Latencies, Rule
from heartbeat_stream.bench.figures import GOALS, Figure, as_json, table
from heartbeat_stream.bench.histogram import Bin, histogram, quantile
from heartbeat_stream.bench.latency import Latency, LatencyTest
from heartbeat_stream.bench.load import Load, RollCall, heartbeat, key_of, room_of
from heartbeat_stream.bench.market import MarketRun, MarketScenario, MarketThroughput
from heartbeat_stream.bench.printing import Printing, PrintingTest
from heartbeat_stream.bench.runs import Run, Scenario, Throughput, WorkerRun, sustained
from heartbeat_stream.bench.state import Recovery, StateFigures
from heartbeat_stream.bench.suite import (
    FULL,
    PARTS_OF_THROUGHPUT,
    Results,
    market_scenarios,
    scenarios_of,
)
from heartbeat_stream.bench.upsert import Measure

MIB = 1024 * 1024


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert quantile(values, 0.5) == 50
    assert quantile(values, 0.99) == 99
    assert quantile(values, 1.0) == 100
    assert quantile(values, 0.0) == 1
    assert quantile([7.0], 0.99) == 7
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_a_histogram_counts_every_value_once() -> None:
    bins = histogram([0.0, 1.0, 2.5, 9.9, 10.0], bins=4)
    assert bins == [Bin(0, 2.5, 2), Bin(2.5, 5, 1), Bin(5, 7.5, 0), Bin(7.5, 10, 2)]
    assert [one.size for one in histogram([-1.0, 1.0], bins=2)] == [1, 1]
    assert sum(one.size for one in histogram([0.0, 0.0])) == 2
    assert histogram([]) == []


def test_more_is_better_unless_less_is() -> None:
    ratio = Figure("keyed", 0.6, "kafka")  # at least 0.5, aim 0.7
    assert ratio.reached(0.5) == pytest.approx(1.2)
    assert ratio.verdict == "yes"
    seconds = Figure("latency", 0.5, "kafka")  # at least 1 s, aim 0.3 s
    assert seconds.reached(1.0) == pytest.approx(2.0)
    assert seconds.reached(0.3) == pytest.approx(0.6)
    assert seconds.verdict == "yes"
    assert Figure("latency", 0.3, "").verdict == "aim"
    assert Figure("latency", 1.01, "").verdict == "NO"
    assert Figure("keyed", 0.49, "").verdict == "NO"
    assert Figure("keyed", 0.7, "").verdict == "aim"
    assert Figure("stall", 0.0, "").reached(1.0) == math.inf


def test_the_goals_are_those_of_the_issue() -> None:
    assert {name: (goal.at_least, goal.aim) for name, goal in GOALS.items()} == {
        "keyed": (0.5, 0.7),
        "unkeyed": (0.2, 0.35),
        "rooms": (0.7, 0.9),
        "market": (0.25, 0.25),
        "printing": (0.1, 0.1),
        "quix": (4, 6),
        "upsert": (0.7, 0.9),
        "latency": (1.0, 0.3),
        "memory": (600, 300),
        "changelog": (30, 10),
        "files": (5, 2),
        "stall": (0.25, 0.05),
        "start": (5, 2),
    }
    assert all(
        goal.most == (goal.aim < goal.at_least)
        for name, goal in GOALS.items()
        if name not in ("market", "printing")  # whose issue has no further aim
    )


def test_the_table_has_a_line_for_each_figure() -> None:
    lines = table([Figure("keyed", 0.6, "kafka", "a note"), Figure("memory", 450, "-")]).split("\n")
    assert len(lines) == 4
    assert lines[2].split()[-8:] == ["0.60", "0.50", "1.20", "0.70", "0.86", "yes", "a", "note"]
    assert "450 bytes" in lines[3]
    assert "1.33" in lines[3]
    assert len({line.index("yes") for line in lines[2:]}) == 1  # columns stand below each other


def test_what_is_sustained_is_what_goes_on_between_commits() -> None:
    commits = [(0.5, 0), (5.0, 1000), (10.0, 2500), (15.0, 3000)]
    assert sustained(commits, 3000) == 300
    assert sustained(commits, 9000) == 200  # the last one does not cover all
    assert sustained(commits[:2], 3000) is None
    assert sustained([(5.0, 3000)], 3000) is None
    assert sustained([], 3000) is None


def test_market_messages_are_measured_on_both_kinds_of_source() -> None:
    keyed, unkeyed = market_scenarios(FULL)
    assert (keyed.keyed, unkeyed.keyed) == (True, False)
    assert keyed.messages == unkeyed.messages


def test_a_load_knows_its_newest_heartbeats() -> None:
    load = Load(messages=120_000, rooms=500, start_ms=1_000, hot_rooms=5)
    newest: dict[int, int] = {}
    counts: dict[int, int] = {}
    for chunk in load.chunks():
        for room, ts_ms in chunk:
            newest[room] = max(newest.get(room, 0), ts_ms)
            counts[room] = counts.get(room, 0) + 1
    assert load.newest() == newest
    assert max(newest.values()) == load.end_ms == 1_000 + 119_999 // 30
    assert sum(counts[room] for room in range(5)) > 0.85 * load.messages
    assert list(load.chunks()) == list(load.chunks())


def test_a_roll_call_has_each_room_once() -> None:
    roll_call = RollCall(120_000, 5)
    pairs = [pair for chunk in roll_call.chunks() for pair in chunk]
    assert sorted(pairs) == [(room, 5) for room in range(120_000)]
    assert roll_call.newest() == dict(pairs)


def test_a_room_is_found_again_by_its_row() -> None:
    for room in (0, 999, 1000, 123_456):
        row = heartbeat(room, 1)
        assert room_of(row.hotel_id, row.room_id) == room
        assert key_of(room) == f"{row.hotel_id}:{row.room_id}".encode()


def test_every_part_that_measures_throughput_has_its_scenarios() -> None:
    scenarios = [one for part in PARTS_OF_THROUGHPUT for one in scenarios_of(part, FULL)]
    by_name = {one.name: one for one in scenarios}
    assert len(by_name) == len(scenarios)
    assert not by_name["unkeyed"].keyed
    assert by_name["cooldown"].warm
    assert by_name["slow-database"].statement_s == 0.05
    assert by_name["rooms-many"].load.rooms == 100 * by_name["rooms-few"].load.rooms
    assert by_name["keyed"].crash
    assert by_name["unkeyed"].crash


def throughput(name: str, rooms: int, seconds: float, **peers: Run) -> Throughput:
    runs = [
        WorkerRun(
            1000,
            one,
            2.0,
            sustained=200.0,
            rows_written=5,
            idle_rss=MIB,
            peak_rss=2 * MIB,
            longest_stall_s=0.1,
        )
        for one in (seconds, seconds / 2, 10 * seconds)
    ]
    ceiling = [Run(1000, one, 1.0) for one in (1.0, 2.0, 4.0)]
    return Throughput(Scenario(name, Load(1000, rooms, 0)), "kafka", 85.0, ceiling, runs, peers)


@pytest.fixture
def results() -> Results:
    load = LatencyTest(100, 10, 5.0, Rule(5, 10))
    seen = Latencies(values=[float(ms) for ms in range(1, 99)], missing=[5_000.0, 6_000.0], first=7)
    recoveries = (
        Recovery("local files, all pending", 4.0, 1.0, 8, 1.0),
        Recovery("changelogs alone, all pending", 9.0, 5.0, 2_000, 4.0),
    )
    quix = {"Quix Streams with state": Run(100, 1.0, 1.0)}
    return Results(
        throughput=[
            throughput("keyed", 100_000, 4.0, **quix),
            throughput("rooms-few", 10_000, 2.0),
            throughput("rooms-many", 1_000_000, 2.5),
        ],
        upsert={
            "copy": {"insert": Measure(100.0, 1.0, 1.0), "update": Measure(200.0, 1.0, 1.0)},
            "sink": {"insert": Measure(90.0, 1.0, 1.0), "update": Measure(150.0, 1.0, 1.0)},
            "sink x2": {"insert": Measure(120.0, 1.0, 1.0), "update": Measure(220.0, 1.0, 1.0)},
        },
        market=[
            MarketThroughput(
                MarketScenario("market", 1000),
                "kafka",
                180.0,
                {"resent": 50, "replayed": 7},
                ceiling=[Run(1000, 1.0, 1.0)],
                worker=[MarketRun(1000, 4.0, 5.0, unique=943, peak_rss=MIB, longest_stall_s=0.1)],
            )
        ],
        printing=[
            Printing(PrintingTest(10, 10.0), "kafka", 100, 40, [float(ms) for ms in range(60)], 0.2)
        ],
        latency=[Latency(load, "kafka", 50, 10.0, seen, 0, 0.5, 0.2, False)],
        state=[StateFigures(1000, "kafka", MIB, MIB + 500_000, recoveries)],
        starts={"kafka": [3.0, 1.0, 2.0]},
    )


def test_the_figures_of_a_run(results: Results) -> None:
    found = {figure.goal: figure.value for figure in results.figures()}
    assert found == {
        "keyed": pytest.approx(250 / 500),  # the medians of both
        "rooms": pytest.approx(400 / 500),
        "market": pytest.approx(250 / 1000),
        "quix": pytest.approx(250 / 100),
        "printing": pytest.approx(0.059),
        "upsert": pytest.approx(0.75),  # the worse of the two
        "latency": pytest.approx(5.0),  # two of a hundred were never written
        "stall": 0.2,
        "memory": 500.0,
        "changelog": 9.0,
        "files": 4.0,
        "start": 2.0,
    }


def test_the_report_says_it_all_in_three_ways(results: Results) -> None:
    from heartbeat_stream.bench import report

    text = report.as_text(results)
    assert "Quix Streams with state" in text
    assert "p50 49 ms, p99 98 ms" in text
    assert "changelogs alone, all pending" in text
    assert "duplicates: 7 replayed, 50 resent; 0 false, 0 missed" in text
    again = json.loads(json.dumps(report.as_json(results)))
    assert again["figures"] == json.loads(json.dumps(as_json(results.figures())))
    assert again["throughput"][0]["ratio"] == pytest.approx(0.5)
    assert "40 were suppressed; arrival to print p50 29 ms, p99 59 ms" in text
    assert again["printing"][0]["quantiles_ms"]["1.0"] == 59
    assert again["market"][0]["cpu_ratio"] == pytest.approx(0.2)
    assert again["latency"][0]["missing"] == 2
    picture = ET.fromstring(report.as_svg(results))
    words = {element.text for element in picture.iter() if element.text}
    assert {"1,000,000", "worker, kafka", "p99 98 ms"} <= words


def test_a_picture_without_data_says_so() -> None:
    picture = ET.fromstring(chart({}, [], []))
    words = [element.text for element in picture.iter() if element.text]
    assert words.count("not measured") == 2
