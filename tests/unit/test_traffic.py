"""Simulated traffic with known truth under the built-in rules: nothing false, nothing missed."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest

from heartbeat_stream.config.jobs import load_job_config
from heartbeat_stream.core.identity.continuity import Oddity
from heartbeat_stream.core.identity.in_memory import InMemory
from heartbeat_stream.core.identity.layer import Layer
from heartbeat_stream.core.identity.seen import First
from heartbeat_stream.core.messages import Held, content_key, judge
from heartbeat_stream.core.tracking import read_event
from heartbeat_stream.local.judged_traffic import Truth
from heartbeat_stream.local.market_traffic import Kind, MarketTraffic
from heartbeat_stream.local.message_traffic import MessageTraffic
from heartbeat_stream.local.sdk_reports import FORMS
from heartbeat_stream.local.tracking_feed import StoredTruth
from heartbeat_stream.local.tracking_traffic import Flush, TrackingTraffic

NOW = 1_700_000_000_000


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_market_traffic_is_judged_as_it_is_in_truth(seed: int) -> None:
    traffic = MarketTraffic(exchanges=1, symbols=2, seed=seed, restart_share=0.02)
    memory = InMemory(load_job_config(None).jobs["market"])
    layers, oddities = Counter[Layer](), Counter[Oddity]()
    for step in range(100):
        now_ms = NOW + 100 * step
        for (_, value), truth in traffic.generate(now_ms, 100):
            _, verdict = memory.take(value, First(now_ms, "market", 0, truth.number))
            assert verdict.is_new is (truth.kind is Kind.NEW), (value, truth)
            assert verdict.layer is truth.layer, (value, truth)
            if verdict.first is not None:
                assert verdict.first.offset == truth.number
            layers.update([verdict.layer] if verdict.layer else [])
            oddities.update(event.oddity for event in verdict.events)
    assert layers.keys() == set(Layer)
    assert traffic.counts.keys() == set(Kind)
    assert oddities[Oddity.RESET] > 2
    assert min(traffic.counts.values()) > 50


def test_market_traffic_has_what_it_promises() -> None:
    traffic = MarketTraffic(exchanges=1, symbols=1, replay_share=0, restart_share=0.05)
    sent = traffic.generate(NOW, 5_000)
    originals = [json.loads(each.record[1]) for each in sent if each.truth.kind is Kind.NEW]
    assert [each["n"] for each in originals] == list(range(1, len(originals) + 1))
    assert len({each.record[0] for each in sent}) == 3
    trades = Counter(each["ts"] for each in originals if each["channel"] == "trade")
    assert max(trades.values()) > 2, "several trades at one time"
    assert any(each.get("seq") == 0 for each in originals)
    assert any("seq" not in each for each in originals)
    ids = [each["seq"] for each in originals if each["channel"] == "depth" and each.get("seq")]
    assert sum(one > two for one, two in pairwise(ids)) > 2, "they start again"
    by_number = {each.truth.number: each.record[1] for each in sent[::-1]}
    for each in sent:
        same = each.record[1] == by_number[each.truth.number]
        if each.truth.kind in (Kind.REWRITTEN, Kind.OTHER_SOURCE):
            assert not same
        if each.truth.kind is Kind.RESENT:
            assert same


def test_the_same_seed_makes_the_same_traffic() -> None:
    one, two, other = MarketTraffic(seed=5), MarketTraffic(seed=5), MarketTraffic(seed=6)
    assert one.generate(NOW, 500) == two.generate(NOW, 500) != other.generate(NOW, 500)
    first, second = MessageTraffic(seed=5), MessageTraffic(seed=5)
    assert first.generate(NOW, 500) == second.generate(NOW, 500)
    with pytest.raises(ValueError, match="want one exchange"):
        MarketTraffic(symbols=0)


def test_texts_are_printed_as_it_is_in_truth() -> None:
    traffic = MessageTraffic(seed=3)
    held: dict[bytes, Held] = {}
    for step in range(300):
        for (key, text), at_ms, printed in traffic.generate(NOW + 200 * step, 20):
            assert key == content_key(text)
            decision = judge(text, at_ms, held.get(key, ()), 10_000)
            held[key] = decision.held
            assert decision.printed is printed
    assert traffic.counts.total() == 6_000
    assert min(traffic.counts.values()) > 500
    again = sum(1 for each in held.values() if each[0].printed_at_ms > NOW + 40_000)
    assert again > 5, "the hot ones are printed in every window"


def tracking(seed: int = 1, *, signup: bool = False) -> tuple[TrackingTraffic, list[Flush]]:
    traffic = TrackingTraffic("run", seed, signup=signup, tabs=(1, 1, 2, 3))
    flushes = [one for step in range(100) for one in traffic.generate(NOW + 100 * step, 50)]
    return traffic, flushes + traffic.late(NOW + 20_000)


@pytest.mark.parametrize("signup", [False, True])
def test_tracking_events_have_the_identity_that_they_have_in_truth(signup: bool) -> None:
    traffic, flushes = tracking(signup=signup)
    numbers: dict[bytes, set[int]] = {}
    copies, exempt = Counter[int](), set()
    for flush in flushes:
        for one in flush.events:
            number = one["properties"]["number"]
            copies[number] += 1
            event = read_event(json.dumps(one).encode(), flush.project)
            identity = event.identity(signup=signup)
            if identity is None:
                exempt.add(number)
            else:
                numbers.setdefault(identity, set()).add(number)
    assert [found for found in numbers.values() if len(found) > 1] == []
    assert len(numbers) + len(exempt) == len(copies)
    assert copies == traffic.copies
    assert exempt == traffic.exempt
    assert traffic.to_be_kept(dropped=False) == copies.total() >= 5_000
    assert traffic.to_be_kept(dropped=True) == len(numbers) + sum(copies[one] for one in exempt)


def test_tracking_traffic_has_what_it_promises() -> None:
    traffic, flushes = tracking()
    assert min(traffic.counts.values()) > 100
    assert traffic.counts.keys() == {"first", "copy", "late copy", "without identity"}
    assert {flush.form for flush in flushes} == set(FORMS)
    times: dict[int, set[int]] = {}
    users: dict[tuple[str, int, int], set[str]] = {}
    ids: dict[tuple[str, int], set[int]] = {}
    for flush in flushes:
        for one in flush.events:
            number, track_id, time = one["properties"]["number"], one.get("_track_id"), one["time"]
            times.setdefault(number, set()).add(one["_flush_time"])
            if track_id and one["type"] == "track":
                place = flush.project, int(track_id), int(time)
                users.setdefault(place, set()).add(one["distinct_id"])
                ids.setdefault((one["distinct_id"], int(time)), set()).add(int(track_id))
    assert max(map(len, times.values())) > 1, "copies differ in their _flush_time"
    assert max(map(len, users.values())) > 1, "devices collide in their _track_id and time"
    assert max(map(len, ids.values())) > 10, "events of a device have one time"


def test_tracking_traffic_is_the_same_for_the_same_seed() -> None:
    assert tracking(5)[1] == tracking(5)[1] != tracking(6)[1]


def right(stored: StoredTruth, traffic: TrackingTraffic, policy: str) -> list[tuple[int, str]]:
    """Tell of the rows that there should be; what was told of copies."""
    told = []
    for number, sent in traffic.copies.items():
        for copy in range(sent):
            is_copy = copy > 0 and number not in traffic.exempt
            if not is_copy or policy == "mark":
                stored.take(number, f"{number}-{copy}", marked=is_copy)
                told += [(number, f"{number}-{copy}")] if is_copy else []
    return told


@pytest.mark.parametrize("policy", ["mark", "drop"])
def test_what_is_stored_is_held_against_the_truth(policy: str) -> None:
    traffic, _ = tracking()
    stored = StoredTruth(traffic, policy)
    assert stored.truth().false == traffic.to_be_kept(dropped=True), "nothing is there yet"
    assert stored.truth().lost == stored.expected
    copies = right(stored, traffic, policy)
    assert stored.truth() == Truth(0, 0, 0, 0)
    assert not stored.truth().wrong
    if policy == "mark":
        stored.take(*copies[0], marked=True)
        assert stored.truth() == Truth(0, 0, 1, 0), "the same record again"
    stored.take(next(iter(traffic.copies)), "elsewhere", marked=policy == "drop")
    assert stored.truth() == Truth(0, 1, int(policy == "mark"), 0), "a copy too many"
    assert stored.truth().wrong


def test_what_is_marked_falsely_or_lost_is_told() -> None:
    traffic = TrackingTraffic("run")
    traffic.copies[1] = 2
    stored = StoredTruth(traffic, "mark")
    stored.take(1, "0-0", marked=True)
    assert stored.truth() == Truth(1, 0, 0, 1)
    stored.take(1, "0-1", marked=True)
    assert stored.truth() == Truth(1, 0, 0, 0)
