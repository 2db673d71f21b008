"""The TOML file of the jobs: what it can say, and what each mistake is answered with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heartbeat_stream.config.jobs import load_job_config, parse_job_config
from heartbeat_stream.config.sources import SettingsError
from heartbeat_stream.core.identity.layers import Judge
from heartbeat_stream.core.identity.rules import (
    BusinessKeyRule,
    ChannelRules,
    EpochMode,
    FingerprintRule,
    Gaps,
    HashWidth,
    JobRules,
    MessageIdRule,
    Nulls,
    TimeRule,
    TimeUnit,
)

START = '[market]\nchannel = "kind"\nscope = ["kind", "symbol"]\n'
CHANNEL = START + "[market.channels.depth]\n"
ID = "message_id = { field = 'seq', ttl_ms = 5, %s }"
KEY = "business_key = { fields = ['kind', 'symbol', %s ], ttl_ms = 5 }"
PRINT = "fingerprint = { ttl_ms = 5, %s }"
TIME = "time = { field = 'ts', unit = 'us' }\n"


def test_everything_that_can_be_said() -> None:
    text = (
        START
        + """
        [market.channels.depth]
        time = { field = "ts", unit = "ns", precision = "ms" }
        [market.channels.depth.message_id]
        field = "seq"
        scope = ["kind", "symbol", "source"]
        ttl_ms = 1
        gaps = "forbidden"
        invalid = [0, -1, "none"]
        epoch = "detect"
        confirmations = 5
        [market.channels.depth.business_key]
        fields = ["ts", "kind", "symbol"]
        invalid = []
        ttl_ms = 2
        [market.channels.depth.fingerprint]
        ttl_ms = 3
        hash = "xxh128"
        exclude = ["route"]
        nulls = "kept"
        numeric_strings = ["bids"]
        times = [{ field = "made", unit = "s" }]
        [market.channels.news]
        message_id = { field = "id", ttl_ms = 4, epoch_field = "conn" }
        [market.channels."*"]
        """
    )
    depth = ChannelRules(
        TimeRule("ts", TimeUnit.NS, TimeUnit.MS),
        MessageIdRule(
            "seq",
            ("kind", "symbol", "source"),
            1,
            Gaps.FORBIDDEN,
            (0, -1, "none"),
            EpochMode.DETECT,
            None,
            5,
        ),
        BusinessKeyRule(("ts", "kind", "symbol"), 2, ()),
        FingerprintRule(
            3,
            HashWidth.XXH128,
            ("route",),
            Nulls.KEPT,
            ("bids",),
            (TimeRule("made", TimeUnit.S),),
        ),
    )
    news = MessageIdRule("id", ("kind", "symbol"), 4, epoch=EpochMode.FIELD, epoch_field="conn")
    rules = JobRules(
        "kind",
        ("kind", "symbol"),
        {"depth": depth, "news": ChannelRules(message_id=news), "*": ChannelRules()},
    )
    assert parse_job_config(text, "x").jobs == {"market": rules}
    Judge(rules)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[market", "f.toml: not TOML: "),
        ("[markets]", 'markets is not known: did you mean "market"?'),
        ("x = 1", "x is not known: want market, tracking"),
        ("market = 1", "market: 1 is wrong: want a table"),
        ("[market]", "market.channel is missing: want some text"),
        ('[market]\nchannel = ""', 'market.channel: "" is wrong: want some text'),
        ('[market]\nchannel = "a"', "market.scope is missing: want a list of names"),
        ('[market]\nchannel = "a"\nscope = "a"', 'market.scope: "a" is wrong: want a list'),
        ('[market]\nchannel = "a"\nscope = []', "market.scope: want one field or more"),
        ('[market]\nchannel = "a"\nscope = ["a", "a"]', "market.scope: ['a', 'a'] is wrong"),
        (START, "market.channels: want one or more"),
        (START + "channels = {}", "market.channels: want one or more"),
        (START + "channels = { a = 1 }", "market.channels.a: 1 is wrong: want a table"),
        (CHANNEL + "ids = {}", "depth.ids is not known: want time, message_id, business_key"),
        (CHANNEL + "fingerprints = {}", 'did you mean "fingerprint"?'),
        (CHANNEL + "time = { field = 'ts' }", "depth.time.unit is missing: want one of"),
        (
            CHANNEL + "time = { field = 'ts', unit = 'sec' }",
            'depth.time.unit: "sec" is wrong: want one of "s", "ms", "us", "ns"',
        ),
        (
            CHANNEL + "time = { field = 'ts', unit = 'ns', precision = 'ns' }",
            'precision: "ns" is wrong: want one of "s", "ms", "us"',
        ),
        (CHANNEL + "time = { field = 'kind', unit = 's' }", '"kind" is part of the scope'),
        (CHANNEL + "message_id = { field = 'seq' }", "message_id.ttl_ms is missing: want a whole"),
        (CHANNEL + "message_id = { ttl_ms = 1 }", "message_id.field is missing: want some text"),
        (CHANNEL + ID % "ttl = 1", 'message_id.ttl is not known: did you mean "ttl_ms"?'),
        (CHANNEL + ID % "gaps = true", "gaps: True is wrong: want one of"),
        (CHANNEL + ID % "gaps = ''", 'gaps: "" is wrong: want one of "allowed", "forbidden"'),
        (CHANNEL + ID % "scope = ['symbol']", '"kind" is part of the job\'s scope: want it here'),
        (CHANNEL + ID % "invalid = [0.5]", "invalid: [0.5] is wrong: want a list of texts and"),
        (CHANNEL + ID % "invalid = [true]", "invalid: [True] is wrong"),
        (CHANNEL + ID % "epoch = 'detect'", 'epoch: "detect" goes by the exchange\'s time'),
        (CHANNEL + ID % "epoch = 'field'", "go together: want both"),
        (CHANNEL + TIME + ID % "epoch = 'detect', epoch_field = 'c'", "go together: want both"),
        (CHANNEL + ID % "confirmations = 1", "confirmations: 1 is wrong: want a whole number fr"),
        (CHANNEL + ID % "epoch_field = 'seq'", '"seq" is the id: want it in no scope'),
        (CHANNEL + "business_key = { ttl_ms = 1 }", "business_key.fields is missing"),
        (CHANNEL + KEY % "", "want a field beyond the scope"),
        (CHANNEL + "business_key = { fields = ['a'], ttl_ms = 1 }", '"kind" is part of the job'),
        (CHANNEL + PRINT % "hash = 'md5'", 'hash: "md5" is wrong: want one of "xxh64", "xxh128"'),
        (CHANNEL + PRINT % "nulls = 'x'", 'nulls: "x" is wrong: want one of "absent", "kept"'),
        (CHANNEL + PRINT % "exclude = ['kind']", 'exclude: "kind" is part of the scope'),
        (CHANNEL + PRINT % "exclude = 5", "exclude: 5 is wrong: want a list of names"),
        (CHANNEL + PRINT % "times = [1]", "times: [1] is wrong: want a list of tables"),
        (CHANNEL + PRINT % "times = [{ field = 'a', unit = 1 }]", "times[0].unit: 1 is wrong"),
        (
            CHANNEL + TIME + PRINT % "times = [{ field = 'ts', unit = 's' }]",
            "times: a field is declared twice",
        ),
        (
            CHANNEL + "fingerprint = { ttl_ms = 0 }",
            "ttl_ms: 0 is wrong: want a whole number from 1",
        ),
        (CHANNEL + "fingerprint = { ttl_ms = true }", "ttl_ms: True is wrong"),
        (CHANNEL + "fingerprint = { ttl_ms = 1.5 }", "ttl_ms: 1.5 is wrong"),
        (START + 'channels = "a\\nb"', r'market.channels: "a\nb" is wrong'),
        ("[" * 100_000, "f.toml: not TOML"),
    ],
)
def test_every_mistake_is_a_line_that_says_what_is_right(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_job_config(text, "f.toml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("f.toml: ")
    assert str(caught.value).isprintable()


def test_a_file_replaces_the_jobs_that_it_mentions(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    built_in = load_job_config(None).jobs
    assert built_in["market"].channels.keys() == {"depth", "trade", "ticker"}
    path.write_text("# nothing\n")
    assert load_job_config(path).jobs == built_in
    path.write_text(CHANNEL)
    assert load_job_config(path).jobs["market"].channels == {"depth": ChannelRules()}


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "jobs.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=re.escape(f'"{path}" ')):
        load_job_config(path)
