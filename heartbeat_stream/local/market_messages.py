"""What simulated exchanges send: one message each, and the many texts that it can have."""

import random
from typing import NamedTuple, Self

from heartbeat_stream.core.identity.layer import Layer

__all__ = ["Original"]

_NO_ID_SHARE = 0.1
_NOTHING_SHARE = 0.03
"""How many have neither an id nor what a business key needs: their content is all there is."""
_NO_IDS = ("0", "null", None)


class Original(NamedTuple):
    """A message that was not there before. ``seq`` and so on are JSON; None is a missing field."""

    number: int
    names: tuple[str, str, str]
    """Exchange, symbol and channel."""
    seq: str | None
    ts: str | None
    trade_id: str | None
    price: int
    """In hundredths, and so are all prices."""
    size: int

    @classmethod
    def draw(
        cls,
        draw: random.Random,
        number: int,
        names: tuple[str, str, str],
        seq: int,
        ts: int,
        trade_id: int,
    ) -> Self:
        """One with these values, or some of them missing."""
        is_trade = names[2] == "trade"
        price, size = draw.randrange(100, 9_000_000), draw.randrange(1, 100_000)
        if draw.random() < _NOTHING_SHARE:
            time = str(ts) if is_trade else None  # a trade's time alone is no key
            return cls(number, names, draw.choice(_NO_IDS), time, "0", price, size)
        id_ = draw.choice(_NO_IDS) if draw.random() < _NO_ID_SHARE else str(seq)
        return cls(number, names, id_, str(ts), str(trade_id) if is_trade else None, price, size)

    @property
    def has_business_key(self) -> bool:
        return self.ts is not None and self.trade_id != "0"

    @property
    def layer(self) -> Layer:
        """The first layer that recognises a copy under the built-in rules."""
        if self.seq is not None and self.seq not in _NO_IDS:
            return Layer.MESSAGE_ID
        return Layer.BUSINESS_KEY if self.has_business_key else Layer.FINGERPRINT

    def text(self, spelling: random.Random | None = None, seq: int | None = None) -> bytes:
        """The text that it was sent in, or another one; with this id instead of its own."""
        fields = self._members(zeros="" if spelling is None else spelling.choice(("", "0", "000")))
        if seq is not None:
            fields["seq"] = str(seq)
        pairs = [f'"{name}":{value}' for name, value in fields.items() if value is not None]
        if spelling is None:
            return ("{" + ",".join(pairs) + "}").encode()
        spelling.shuffle(pairs)
        pairs.append(f'"received_at":{spelling.randrange(10**12)}')
        return ("{ " + ", ".join(pairs) + " }").encode()

    def _members(self, zeros: str) -> dict[str, str | None]:
        exchange, symbol, channel = self.names
        fields = {
            "exchange": f'"{exchange}"',
            "symbol": f'"{symbol}"',
            "channel": f'"{channel}"',
            "ts": self.ts,
            "seq": self.seq,
            "n": str(self.number),
        }
        if channel != "depth":
            price, size = _hundredths(self.price, zeros), _hundredths(self.size, zeros)
            return fields | {"price": price, "size": size, "trade_id": self.trade_id}
        for side, step in (("bids", -1), ("asks", 1)):
            levels = [
                f'["{_hundredths(self.price + step * level, "")}",{_hundredths(self.size, zeros)}]'
                for level in range(1, 4)
            ]
            fields[side] = f"[{','.join(levels)}]"
        return fields


def _hundredths(number: int, zeros: str) -> str:
    whole, rest = divmod(number, 100)
    return f"{whole}.{rest:02}{zeros}"
