"""What docs/duplicates.md says is so."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from heartbeat_stream.config.jobs import load_job_config, parse_job_config
from heartbeat_stream.core.identity.canonical import FORM_VERSION, CanonicalForm
from heartbeat_stream.core.identity.continuity import Oddity
from heartbeat_stream.core.identity.layers import Judge
from heartbeat_stream.core.identity.numbers import EXPONENT_MAX
from heartbeat_stream.core.identity.rules import (
    BusinessKeyRule,
    FingerprintRule,
    MessageIdRule,
)
from heartbeat_stream.core.reasons import Reason

PAGE = (Path(__file__).parents[2] / "docs" / "duplicates.md").read_text("utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose first heading this is."""
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")[2:]]


def test_the_first_example_is_what_is_built_in() -> None:
    assert parse_job_config(EXAMPLES[0], "page") == load_job_config(None)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_can_be_used(example: str) -> None:
    rules = parse_job_config(example, "page").jobs["market"]
    Judge(rules)
    assert any(each.message_id or each.fingerprint for each in rules.channels.values())


@pytest.mark.parametrize(
    ("layer", "rule"),
    [
        ("message_id", MessageIdRule),
        ("business_key", BusinessKeyRule),
        ("fingerprint", FingerprintRule),
    ],
)
def test_every_key_is_explained_with_its_default(layer: str, rule: type) -> None:
    explained = {
        row[0].strip("`").removeprefix(f"{layer}."): row[1]
        for row in rows("key")
        if layer in row[0]
    }
    assert explained.keys() == {field.name for field in fields(rule)} - {"ttl_ms"}
    for name, default in explained.items():
        if default.startswith("`"):
            declared = rule.__dataclass_fields__[name].default  # type: ignore[attr-defined]
            made = list(declared) if isinstance(declared, tuple) else declared
            shown = f'"{made}"' if isinstance(made, str) else repr(made).replace("'", '"')
            assert default == f"`{shown}`"


def test_the_pairs_are_the_same_or_not() -> None:
    form = CanonicalForm(FingerprintRule(1)).of
    pairs = rows("one message")
    assert len(pairs) == 7
    for one, other, same in pairs:
        forms = form(one.strip("`").encode()), form(other.strip("`").encode())
        assert (forms[0] == forms[1]) is (same == "yes")
    numeric = CanonicalForm(FingerprintRule(1, numeric_strings=("p",))).of
    assert numeric(pairs[4][0].strip("`").encode()) == numeric(pairs[4][1].strip("`").encode())


def test_the_chances_are_those_of_64_bits() -> None:
    for rate_text, ttl_text, held_text, after, _ in rows("messages a second in the third layer"):
        rate, ttl_ms, held = (
            int(text.replace(",", "")) for text in (rate_text, ttl_text, held_text)
        )
        assert held == rate * ttl_ms // 1_000
        days = 2**64 / (rate * held) / 86_400
        number, unit = after.split()
        assert round(days / (365.25 if unit == "years" else 1)) == int(number)


def test_what_is_named_exists() -> None:
    assert {row[0].strip("`") for row in rows("event")} == {each.value for each in Oddity}
    assert {"bad-time", "number-too-large", "bad-text"} <= {reason.value for reason in Reason}
    for code in re.findall(r"dead letter \(`([\w-]+)`\)", PAGE):
        assert code in {reason.value for reason in Reason}
    assert f"version {FORM_VERSION}:" in PAGE
    assert f"an exponent beyond {EXPONENT_MAX}," in PAGE
