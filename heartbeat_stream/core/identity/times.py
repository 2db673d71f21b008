"""Times of a declared unit, as whole microseconds since 1970.

The unit is declared and never guessed. A time may be an integer, a number with a fraction, or a
string of either. What is finer than a microsecond, or than the declared precision, is cut off.
"""

from collections.abc import Callable

from msgspec import Raw

from heartbeat_stream.core.identity.json_values import text_of_number
from heartbeat_stream.core.identity.numbers import fixed_point, is_number
from heartbeat_stream.core.identity.rules import TimeRule, TimeUnit
from heartbeat_stream.core.reasons import Reason, Rejected

__all__ = ["MAX_US", "microseconds"]

MAX_US = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""

_DIGITS_PER_SECOND = {TimeUnit.S: 0, TimeUnit.MS: 3, TimeUnit.US: 6, TimeUnit.NS: 9}
_TEXT_MAX = 64
_DIGITS_MAX = len(f"{MAX_US}000")


def microseconds(rule: TimeRule) -> Callable[[object], int]:
    """A function from a field's value, neither missing nor null, to microseconds.

    It raises :class:`Rejected` for what is no number, or lies before 1970 or after 9999.
    """
    shift = 6 - _DIGITS_PER_SECOND[rule.unit]
    places = max(shift, 0)
    factor, divisor = _power(shift), _power(-shift)
    step = _power(6 - _DIGITS_PER_SECOND[rule.precision])

    def convert(value: object) -> int:
        if type(value) is int:
            us = value * factor // divisor
        else:
            text = _number_text(value)
            if text is None:
                raise _rejected(rule, "no number")
            whole, _, fraction = text.partition(".")
            if len(whole) > _DIGITS_MAX:
                raise _rejected(rule, "out of range")
            us = int(whole + fraction[:places].ljust(places, "0")) // divisor
            if text[0] == "-":
                us = -1
        if not 0 <= us <= MAX_US:
            raise _rejected(rule, "out of range")
        return us - us % step

    return convert


def _power(of_ten: int) -> int:
    return int("1".ljust(1 + of_ten, "0"))


def _number_text(value: object) -> str | None:
    if type(value) is Raw:
        return text_of_number(value)
    if isinstance(value, str) and len(value) <= _TEXT_MAX and is_number(value):
        return fixed_point(value)
    return None


def _rejected(rule: TimeRule, what: str) -> Rejected:
    wanted = f'a number of the unit "{rule.unit}" since 1970, up to the year 9999'
    return Rejected(Reason.BAD_TIME, f"{ascii(rule.field)[:60]} is {what}, should be {wanted}")
