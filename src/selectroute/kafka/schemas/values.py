"""Values of Avro and Protobuf bodies that JSON does not have: times, infinities.

Byte strings and decimals are Python's own ``bytes`` and ``Decimal``; every other value is what the same JSON
would be. `value_of_json` converts all of them to the bound types.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Final, Literal

MAX_DECIMAL_BYTES: Final = 64
"""Maximum size of a decimal's digits, as the 154 decimal ones that fit: their conversion is quadratic."""

MAX_SCALE: Final = 1_000
"""Maximum number of decimal places, either way: a decimal's text has as many digits."""

_EXACT: Final = Context(prec=MAX_SCALE)
_EPOCH: Final = datetime(1970, 1, 1)


class NonFinite(float):
    """NaN or an infinity, which JSON does not have. (A JSON number beyond its type's range is invalid.)"""


@dataclass(frozen=True, slots=True)
class Temporal:
    """Point in time, date, time of day or duration.

    Attributes:
        kind: the meaning of the count; ``local`` is a date and time without a time zone.
        count: days for a date, and nanoseconds for all others: since 1970, since midnight, or of a duration.
    """

    kind: Literal["instant", "local", "date", "time", "duration"]
    count: int

    @property
    def number(self) -> int:
        """Days since 1970 for a date, and whole milliseconds, rounded down, for all others."""
        return self.count if self.kind == "date" else self.count // 1_000_000

    @property
    def text(self) -> str | None:
        """Text as in RFC 3339, with as many digits of a second as are needed; a duration is ``1.5s``.

        None for a year before 1 or after 9999.
        """
        seconds, nanos = divmod(self.count, 1_000_000_000)
        fraction = f".{nanos:09}".rstrip("0") if nanos else ""
        try:
            if self.kind == "duration":
                sign, rest = ("-", -self.count) if self.count < 0 else ("", self.count)
                fraction = f".{rest % 1_000_000_000:09}".rstrip("0").rstrip(".")
                return f"{sign}{rest // 1_000_000_000}{fraction}s"
            if self.kind == "date":
                return (date(1970, 1, 1) + timedelta(days=self.count)).isoformat()
            moment = (_EPOCH + timedelta(seconds=seconds)).isoformat()
        except OverflowError:
            return None
        if self.kind == "time":
            return moment[11:] + fraction if 0 <= seconds < 86_400 else None
        return moment + fraction + ("Z" if self.kind == "instant" else "")


def decimal_of(digits: bytes, scale: int) -> Decimal | bytes:
    """Return the decimal with this unscaled value, a big-endian two's complement; the bytes if too large."""
    if len(digits) > MAX_DECIMAL_BYTES or not -MAX_SCALE <= scale <= MAX_SCALE:
        return digits
    return Decimal(int.from_bytes(digits, "big", signed=True)).scaleb(-scale, _EXACT)
