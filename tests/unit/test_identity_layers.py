"""The layers in their order: who recognises what, who is asked, what is recorded."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heartbeat_stream.core.identity.in_memory import InMemory
from heartbeat_stream.core.identity.layer import MARKS, Abstention, Layer
from heartbeat_stream.core.identity.layers import Judge
from heartbeat_stream.core.identity.rules import (
    BusinessKeyRule,
    ChannelRules,
    EpochMode,
    JobRules,
    TimeRule,
    TimeUnit,
)
from heartbeat_stream.core.identity.seen import First
from heartbeat_stream.core.identity.tally import Tally
from heartbeat_stream.core.reasons import Reason, Rejected
from tests.support.identity import SCOPE, T0, TTL, Job, fingerprint, ids, key, market, message

ID, KEY, PRINT = Layer.MESSAGE_ID, Layer.BUSINESS_KEY, Layer.FINGERPRINT


def three(**changes: Any) -> JobRules:
    return market(ids(**changes), key("ts"), fingerprint())


def test_the_worked_example() -> None:
    """A change of an order book, first by its id, then by its time, then by its content."""
    job = Job(three())
    assert job.all(
        message(seq=100, ts=T0),
        message(seq=100, ts=T0),  # sent again
        message(seq=100, ts=T0 + 5, bids=[]),  # the id decides, and nothing else is looked at
        message(seq=2_000, ts=T0),  # the same event by another source, with an id of its own
        message(seq=101, ts=T0 + 1),
        message(seq=100, ts=T0, symbol="ETHUSDT"),  # other scopes have ids of their own
        message(seq=100, ts=T0, exchange="okx"),
        message(seq=..., ts=..., bids=[[1.10, 2]]),  # neither id nor time: the content
        message(seq=..., ts=..., bids=[[1.1, 2.0]], recv_ts=5),
        message(seq=..., ts=..., bids=[[1.11, 2]]),
    ) == ["new", ID, ID, KEY, "new", "new", "new", "new", PRINT, "new"]


def test_several_trades_at_one_time_are_several() -> None:
    """With the trade's id in the key; with the time alone they would be taken for one."""
    trades = [message(seq=..., trade_id=number, px=number) for number in (1, 2, 3, 2)]
    assert Job(market(None, key("ts", "trade_id"))).all(*trades) == ["new", "new", "new", KEY]
    assert Job(market(None, key("ts"))).all(*trades) == ["new", KEY, KEY, KEY]


@pytest.mark.parametrize("none", [0, "0", "", None, ...])
def test_an_id_that_is_none(none: Any) -> None:
    """Exact twins go, different messages stay, and nothing is recorded under the id."""
    job = Job(three())
    first = job.take(message(seq=none, px=1))
    assert first.abstained[0][0] is ID
    assert [identity.layer for identity in first.record] == [KEY, PRINT]
    assert job.take(message(seq=none, px=2, ts=T0 + 1)).is_new
    assert job.take(message(seq=none, px=1)).layer is KEY
    assert job.tally.message_id.checks == 0
    assert job.tally.message_id.abstentions == 3


def test_trades_with_an_id_of_zero_are_told_apart_by_their_content() -> None:
    rules = market(ids(), key("ts", "trade_id", invalid=(0, "")), fingerprint())
    trades = [message(seq=0, trade_id=0, px=px) for px in (1, 2, 1)]
    assert Job(rules).all(*trades) == ["new", "new", PRINT]


def test_the_same_content_in_another_text() -> None:
    """The declared rule decides about 1.5 and "1.5"."""
    texts = ['{"p": 1.5, "q": 2}', '{"q": 2, "p": 1.50}', '{"q": 2.0, "p": "1.5"}']
    start = '{"exchange": "e", "channel": "depth", "symbol": "s", '
    texts = [start + text[1:] for text in texts]
    assert Job(market(fingerprint=fingerprint())).all(*texts) == ["new", PRINT, "new"]
    numeric = fingerprint(numeric_strings=("p",))
    assert Job(market(fingerprint=numeric)).all(*texts) == ["new", PRINT, PRINT]


def test_only_the_whole_key_makes_a_duplicate() -> None:
    """An id that another source, user or time has used as well."""
    rules = market(ids(scope=(*SCOPE, "source")), key("user", "ts"))
    assert Job(rules).all(
        message(source="a", user=1),
        message(source="b", user=2),
        message(source="b", user=3, ts=T0 + 1, seq=2),
        message(source="a", user=2, ts=T0 + 1, seq=3),
        message(source="b", user=2, ts=T0, seq=4),
    ) == ["new", "new", "new", "new", KEY]


def test_an_id_and_its_digits_are_one() -> None:
    assert Job(three()).all(message(seq=5), message(seq="5", ts=T0 + 1)) == ["new", ID]


def test_a_scope_of_a_number_or_a_text_is_one_and_true_is_none() -> None:
    job = Job(three())
    assert job.all(message(symbol=1), message(symbol="1")) == ["new", ID]
    with pytest.raises(Rejected):
        job.take(message(symbol=True))


def test_parts_that_run_into_each_other_stay_apart() -> None:
    rules = market(None, key("a", "b"))
    pairs = [("1", "2:3"), ("1:2", "3"), ("12", "3"), ("1", "23"), ("", "1"), ("1", "")]
    rules = market(None, key("a", "b", invalid=()))
    assert Job(rules).all(*(message(a=a, b=b) for a, b in pairs)) == ["new"] * len(pairs)


def test_what_a_new_message_is_recorded_under() -> None:
    verdict = Job(three()).take(message())
    assert verdict.is_new
    assert verdict.layer is None
    assert verdict.first is None
    assert [identity.layer for identity in verdict.record] == [ID, KEY, PRINT]
    assert {identity.ttl_ms for identity in verdict.record} == {TTL}
    assert len({identity.key for identity in verdict.record}) == 3


def test_a_duplicate_names_the_first_and_records_nothing() -> None:
    job = Job(three())
    job.take(message(), at_ms=7)
    for _ in range(2):
        verdict = job.take(message(), at_ms=9)
        assert verdict.first == First(7, "market", 0, 0)
        assert verdict.record == ()


def test_a_duplicate_is_not_recorded_under_its_other_identities() -> None:
    """It was never put out: what repeats it repeats the first."""
    job = Job(market(ids(), key("ts")))
    assert job.all(message(seq=1), message(seq=2)) == ["new", KEY]
    assert job.take(message(seq=2, ts=T0 + 9)).is_new


def test_an_identity_is_forgotten_after_its_time_to_live() -> None:
    job = Job(market(ids(ttl_ms=10)))
    assert job.take(message(), at_ms=100).is_new
    assert not job.take(message(), at_ms=109).is_new
    assert not job.take(message(), at_ms=50).is_new, "a timestamp that steps back is no reason"
    assert job.take(message(), at_ms=110).is_new
    assert not job.take(message(), at_ms=119).is_new


class CountingSeen:
    """Knows nothing, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Layer] = []

    def get(self, key: bytes) -> First | None:
        layer = next(layer for layer, mark in MARKS.items() if key.startswith(mark))
        self.asked.append(layer)
        return First(0, "market", 0, 0) if layer is KEY else None


def test_a_later_layer_is_asked_only_about_what_the_earlier_ones_passed() -> None:
    judge, seen, tally = Judge(three()), CountingSeen(), Tally()
    read = judge.read(json.dumps(message(px="1e999999999")).encode())
    verdict = judge.judge(read, seen, None, 0, tally)
    assert verdict.layer is KEY
    assert seen.asked == [ID, KEY]
    assert tally.message_id.checks == tally.business_key.checks == tally.business_key.hits == 1
    assert tally.fingerprint.checks == tally.message_id.hits == 0


def test_a_rejected_message_changes_nothing() -> None:
    memory = InMemory(market(ids(), None, fingerprint()))
    bomb = json.dumps(message()).replace('"asks"', '"p": 1e999999999, "asks"').encode()
    for _ in range(2):
        with pytest.raises(Rejected) as caught:
            memory.take(bomb, First(0, "market", 0, 0))
        assert caught.value.reason is Reason.NUMBER_TOO_LARGE
    assert len(memory.seen) == 0
    assert memory.states == {}


@pytest.mark.parametrize(
    ("given_message", "reason"),
    [
        (message(symbol=None), Reason.MISSING_SCOPE_FIELD),
        (message(channel=...), Reason.MISSING_SCOPE_FIELD),
        (message(channel="news"), Reason.UNKNOWN_CHANNEL),
        (message(exchange=["a"]), Reason.BAD_KEY_FIELD),
        (message(symbol={}), Reason.BAD_KEY_FIELD),
        (message(seq=True), Reason.BAD_KEY_FIELD),
        (message(seq=[1]), Reason.BAD_KEY_FIELD),
        (message(ts="noon"), Reason.BAD_TIME),
        ("[]", Reason.NOT_OBJECT),
        ("{", Reason.NOT_JSON),
        (b'{"other":"\xff","exchange":"e","symbol":"s","channel":"depth"}', Reason.NOT_UTF8),
    ],
)
def test_what_cannot_be_judged(given_message: Any, reason: Reason) -> None:
    with pytest.raises(Rejected) as caught:
        Job(three()).take(given_message)
    assert caught.value.reason is reason
    assert caught.value.detail.isprintable()


def test_a_channel_without_layers_passes_everything() -> None:
    rules = JobRules("channel", SCOPE, {"depth": three().channels["depth"], "*": ChannelRules()})
    job = Job(rules)
    assert job.all(message(channel="news"), message(channel="news")) == ["new", "new"]
    assert job.all(message(), message()) == ["new", ID]


def test_other_rules_make_other_keys_and_the_same_ones_the_same() -> None:
    def keys(rules: JobRules) -> list[bytes]:
        taken = Job(rules).take(message(a=1, ts=T0 // 1_000))
        return [identity.key for identity in taken.record]

    base = keys(three())
    assert keys(three()) == base
    assert keys(three(ttl_ms=1, confirmations=9)) == base, "no matter of identity"
    assert keys(three(invalid=(0,)))[0] != base[0]
    assert keys(market(ids(), key("ts", "a"), fingerprint()))[1] != base[1]
    assert keys(market(ids(), key("ts"), fingerprint(exclude=())))[2] != base[2]
    in_ms = market(ids(), key("ts"), fingerprint(), TimeRule("ts", TimeUnit.MS))
    assert keys(in_ms)[1] != base[1]
    assert keys(in_ms)[2] != base[2]


def test_the_scope_key_does_not_depend_on_the_rules() -> None:
    value = json.dumps(message()).encode()
    one, two = Judge(three()).read(value), Judge(market()).read(value)
    assert one.scope_key == two.scope_key
    assert one.state_key is not None
    assert two.state_key is None


def test_reasons_for_people() -> None:
    memory = InMemory(three())
    value = json.dumps(message(seq=7)).encode()
    here = First(0, "market", 0, 0)
    read, verdict = memory.take(value, here)
    assert verdict.reason == memory.judge.explain(read, verdict) == "new"
    read, verdict = memory.take(value, here)
    assert verdict.reason == "the same message id"
    assert memory.judge.explain(read, verdict) == (
        "the same message id: exchange=binance channel=depth symbol=BTCUSDT seq=7"
    )
    read, verdict = memory.take(json.dumps(message(seq=0)).encode(), here)
    assert verdict.abstained == ((ID, Abstention.INVALID),)
    assert memory.judge.explain(read, verdict) == (
        "the same business key; message-id abstained: invalid: "
        f"exchange=binance channel=depth symbol=BTCUSDT ts={T0}"
    )


def test_every_so_many_messages_are_timed() -> None:
    ticks = iter(range(0, 10_000, 100))
    memory = InMemory(three(), Tally(timer=lambda: next(ticks), sample=2))
    for seq in range(1, 5):
        memory.take(json.dumps(message(seq=seq, ts=T0 + seq)).encode(), First(0, "m", 0, 0))
    for tally in memory.tally.by_layer.values():
        assert (tally.checks, tally.timed, tally.timed_ns) == (4, 2, 200)
    assert memory.tally.messages == 4


# -- against a model that looks through all messages -------------------------------------------


class Sent(NamedTuple):
    """A message of few different values, so that many are the same in some way."""

    symbol: str
    seq: object
    ts: object
    price: str
    at_ms: int

    def text(self) -> str:
        fields = [f'"symbol":"{self.symbol}"', '"exchange":"e"', '"channel":"depth"']
        fields += [] if self.seq is ... else [f'"seq":{json.dumps(self.seq)}']
        fields += [] if self.ts is ... else [f'"ts":{json.dumps(self.ts)}']
        return "{" + ",".join([*fields, f'"price":{self.price}']) + "}"

    def identities(self) -> dict[Layer, object]:
        found: dict[Layer, object] = {PRINT: self._content()}
        if self.seq not in (None, ..., 0):
            found[ID] = (self.symbol, str(self.seq))
        if self.ts not in (None, ...):
            found[KEY] = (self.symbol, self.ts)
        return {layer: found[layer] for layer in (ID, KEY, PRINT) if layer in found}

    def _content(self) -> object:
        seq = None if self.seq is ... else self.seq
        ts = None if self.ts is ... else self.ts
        return (self.symbol, type(seq), seq, ts, float(self.price))


sent = st.builds(
    Sent,
    st.sampled_from("AB"),
    st.sampled_from([..., None, 0, 1, 2, 3, "1", "2"]),
    st.sampled_from([..., None, 5, 6, 7]),
    st.sampled_from(["1", "1.0", "1.5", "1.50", "15e-1"]),
    st.integers(0, 40),
)

TTLS = {ID: 30, KEY: 20, PRINT: 10}


@settings(max_examples=300, deadline=None)
@given(st.lists(sent, max_size=25))
def test_the_engine_does_what_a_search_through_all_messages_does(messages: list[Sent]) -> None:
    job = Job(market(ids(ttl_ms=30), key("ts", ttl_ms=20), fingerprint(ttl_ms=10)))
    recorded: list[tuple[int, Sent]] = []
    for offset, each in enumerate(sorted(messages, key=lambda one: one.at_ms)):
        layer, first = search(recorded, each)
        verdict = job.take(each.text(), each.at_ms)
        assert verdict.layer is layer
        assert (verdict.first and verdict.first.offset) == first
        if layer is None:
            recorded.append((offset, each))


def search(recorded: list[tuple[int, Sent]], each: Sent) -> tuple[Layer | None, int | None]:
    for layer, identity in each.identities().items():
        for offset, other in reversed(recorded):
            if other.identities().get(layer) == identity:
                if each.at_ms - other.at_ms < TTLS[layer]:
                    return layer, offset
                break
    return None, None


def test_epochs_make_no_difference_where_ids_only_rise() -> None:
    messages = [message(seq=seq, ts=T0 + seq) for seq in (1, 2, 2, 5, 4, 4, 9)]
    for mode in (EpochMode.NONE, EpochMode.DETECT):
        layers = Job(market(ids(epoch=mode))).all(*messages)
        assert layers == ["new", "new", ID, "new", "new", ID, "new"]


def test_an_event_is_one_for_its_project_its_person_its_id_and_its_time() -> None:
    """The rule of tracking events: no other identity counts, and without an id all pass."""
    scope = ("project", "distinct_id")
    track = BusinessKeyRule((*scope, "_track_id", "time"), TTL, invalid=(0,))
    time = TimeRule("time", TimeUnit.MS)
    channels = {"track": ChannelRules(time, business_key=track), "*": ChannelRules()}
    job = Job(JobRules("type", scope, channels))

    def event(**changes: Any) -> dict[str, Any]:
        base = {"type": "track", "project": "p", "distinct_id": "d", "_track_id": 9, "time": 5}
        return base | changes

    assert job.all(
        event(),
        event(_flush_time=7),
        event(time="5.0"),
        event(distinct_id="e"),
        event(project="q"),
        event(_track_id=8),
        event(time=6),
        *[event(type="profile_set")] * 2,
        *[event(_track_id=0)] * 2,
        *[event(time=None)] * 2,
    ) == ["new", KEY, KEY, *["new"] * 10]
