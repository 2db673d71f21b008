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
from heartbeat_stream.local.market_traffic import Kind, MarketTraffic
from heartbeat_stream.local.message_traffic import MessageTraffic

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
