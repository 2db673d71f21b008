"""JSON documents with exact numbers, spelled in many ways, and what makes two of them equal.

Shares no code with the product: a number is a ``Decimal`` here, and equality is a comparison of
trees.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st

__all__ = ["NUMBERS", "documents", "meaning", "spell"]

Draw = Callable[[st.SearchStrategy[Any]], Any]

_NUMBERS = "0 1 -1 1.1 1.5 10 0.1 0.10000000000000001 9007199254740992 9007199254740993 1E-30"
NUMBERS = [Decimal(text) for text in [*_NUMBERS.split(), "123456789012345678901234567890"]]
_TEXTS = ["", "1.5", "1.50", "a", "é", "\n", "\u2028", "\x7f", "😀", '"', "\\", "null"]
_KEYS = ["a", "b", "é", "\uffff", "😀", "recv_ts", "px"]

leaves = st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(_TEXTS))
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner),
    max_leaves=5,
)
documents = st.dictionaries(st.sampled_from(_KEYS), values, max_size=4)


def meaning(value: Any, *, drop_nulls: bool, numeric: bool = False) -> object:
    """A tree that is equal for two documents exactly if the rules make them equal."""
    if isinstance(value, dict):
        members = {
            key: meaning(member, drop_nulls=drop_nulls, numeric=numeric)
            for key, member in value.items()
            if not (drop_nulls and member is None)
        }
        return frozenset(members.items())
    if isinstance(value, list):
        return tuple(meaning(each, drop_nulls=drop_nulls, numeric=numeric) for each in value)
    if numeric and isinstance(value, str):
        try:
            return "number", Decimal(value)
        except ArithmeticError:
            return str, value
    return "number" if isinstance(value, Decimal) else type(value), value


def spell(draw: Draw, value: Any) -> str:
    """One of many JSON texts of this value."""
    space: str = draw(st.sampled_from(["", "", " ", "\n\t"]))
    if isinstance(value, dict):
        keys = draw(st.permutations(list(value)))
        members = [f"{_string(draw, key)}{space}:{spell(draw, value[key])}" for key in keys]
        return "{" + f",{space}".join(members) + space + "}"
    if isinstance(value, list):
        return f"[{space}" + ",".join(spell(draw, each) for each in value) + "]"
    if isinstance(value, Decimal):
        return _number(draw, value)
    return _string(draw, value) if isinstance(value, str) else json.dumps(value)


def _string(draw: Draw, text: str) -> str:
    spelled = json.dumps(text, ensure_ascii=draw(st.booleans()))
    return spelled.replace("a", r"\u0061") if draw(st.booleans()) else spelled


def _number(draw: Draw, number: Decimal) -> str:
    shift = draw(st.integers(-3, 3))
    digits = f"{number.scaleb(shift, context=_WIDE):f}"
    if draw(st.booleans()):
        digits = f"{digits}000" if "." in digits else f"{digits}.00"
    if shift:
        return f"{digits}{draw(st.sampled_from('eE'))}{-shift:{draw(st.sampled_from(['', '+']))}}"
    return digits


_WIDE = Context(prec=100)
