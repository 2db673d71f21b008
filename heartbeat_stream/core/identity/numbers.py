"""Numbers as fixed-point text: one spelling for each number, whatever its spelling in JSON.

``1.10``, ``1.1`` and ``11e-1`` are ``1.1``; ``0.1`` and ``0.10000000000000001`` stay two. The text
is rewritten, digit by digit, and never becomes a float: there is nothing to round. It costs time
and space in proportion to the text, since an exponent is bounded.
"""

import re

from heartbeat_stream.core.reasons import Reason, Rejected

__all__ = ["EXPONENT_MAX", "fixed_point", "is_number"]

EXPONENT_MAX = 1_100
"""The largest exponent as it is written, in either direction: beyond all doubles, 1e-1074 too."""

_EXPONENT_DIGITS_MAX = 6  # more are beyond the limit, unless zeros lead them
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def is_number(text: str) -> bool:
    """Whether the text is a number as JSON spells it, and nothing else."""
    return _NUMBER.fullmatch(text) is not None


def fixed_point(text: str) -> str:
    """The one spelling of the number that this JSON number is: no exponent, no needless zero.

    Raises :class:`Rejected` for an exponent beyond ``EXPONENT_MAX``. Anything that is no JSON
    number makes no sense here.
    """
    if "e" in text or "E" in text:
        return _written_out(text)
    if "." in text:
        text = text.rstrip("0")
        if text[-1] == ".":
            text = text[:-1]
    return "0" if text == "-0" else text


def _written_out(text: str) -> str:
    mantissa, _, exponent = text.lower().partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = whole + fraction
    point = len(whole) + _bounded(exponent)  # counted from the left end of the digits
    if point <= 0:
        digits = "0" * (1 - point) + digits
        point = 1
    elif point > len(digits):
        digits += "0" * (point - len(digits))
    whole = digits[:point].lstrip("0") or "0"
    fraction = digits[point:].rstrip("0")
    if whole == "0" and not fraction:
        return "0"
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _bounded(exponent: str) -> int:
    digits = exponent.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _EXPONENT_DIGITS_MAX or int(digits) > EXPONENT_MAX:
        shown = exponent if len(exponent) <= _EXPONENT_DIGITS_MAX else "too long to be shown"
        raise Rejected(
            Reason.NUMBER_TOO_LARGE,
            f"a number has the exponent {shown}, should be {-EXPONENT_MAX} to {EXPONENT_MAX}",
        )
    return -int(digits) if exponent[0] == "-" else int(digits)
