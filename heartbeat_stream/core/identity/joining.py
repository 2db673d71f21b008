"""Parts of a key, and how they are joined so that no two different lists collide.

A part is text: a string itself, an integer its decimal digits, another number its fixed-point
text. So ``5`` and ``"5"`` are one part, as sources spell ids in either way; ``"05"`` is another.
"""

from collections.abc import Iterable

from msgspec import Raw

from heartbeat_stream.core.identity.json_values import text_of_number
from heartbeat_stream.core.reasons import Reason, Rejected

__all__ = ["PART_MAX", "join", "join_one", "join_two", "part_of"]

PART_MAX = 1_024
"""The longest part, in characters."""

_INT_MAX = 10**18


def join_one(part: str) -> bytes:
    """The same as :func:`join` for one part, and faster."""
    if part.isascii():
        return f"{len(part)}:{part}".encode()
    return join((part,))


def join_two(one: str, two: str) -> bytes:
    """The same for two."""
    if one.isascii() and two.isascii():
        return f"{len(one)}:{one}{len(two)}:{two}".encode()
    return join((one, two))


def join(parts: Iterable[str]) -> bytes:
    """``len:part`` one after the other, the length in bytes: what follows a part is no matter.

    Whoever reads from the left knows where each part ends, so the joined bytes tell the list. A
    list that begins with all the parts of another begins with its bytes.
    """
    encoded = [part.encode() for part in parts]
    return b"".join([b"%d:%b" % (len(part), part) for part in encoded])


def part_of(value: object, field: str) -> str:
    """The part that a field's value, neither missing nor null, is. Raises :class:`Rejected`."""
    if type(value) is int:
        if -_INT_MAX < value < _INT_MAX:
            return str(value)
        text = _long(value)
    elif type(value) is str:
        text = value
    elif type(value) is Raw:
        text = text_of_number(value)
    else:
        raise _rejected(field, "a list, an object, true or false")
    if len(text) > PART_MAX:
        raise _rejected(field, f"longer than {PART_MAX} characters")
    if not text.isascii():
        _check_text(text, field)
    return text


def _long(number: int) -> str:
    return str(number) if abs(number) < 10**PART_MAX else "0" * (PART_MAX + 1)


def _check_text(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _rejected(field, "a string with half a surrogate pair") from None


def _rejected(field: str, what: str) -> Rejected:
    wanted = f"a string or a number of at most {PART_MAX} characters"
    return Rejected(Reason.BAD_KEY_FIELD, f"{ascii(field)[:60]} is {what}, should be {wanted}")
