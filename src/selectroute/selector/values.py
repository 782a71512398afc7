"""Values of properties and literals with Java's arithmetic and comparison, and the truth values of Kleene's
three-valued logic (seed 004, "Null values").

A value is a Python ``bool``, ``str`` or ``bytes`` (a byte string), or one of six number classes that carry
Java's width; NULL is ``None``. Binary numeric promotion (seed 004: "must use Java numeric promotion") is the
same for arithmetic and comparison: a double with anything makes both double; otherwise a float makes both
float, a long too; otherwise a long makes both long; otherwise both are int.

``==`` on values is structural: type and exact value (``Double(0.0) != Double(-0.0)``, a NaN equals a NaN).
The selector's ``=`` is `compare`.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral
from typing import ClassVar, Final, NoReturn, TypeVar
from typing import Literal as OneOf


class Truth(Enum):
    """TRUE, FALSE or UNKNOWN. A selector matches a message only when it is TRUE."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"

    def __bool__(self) -> NoReturn:
        # `if selector.evaluate(message):` would count UNKNOWN as true, `not` as false: both are wrong.
        raise TypeError("a Truth is not a bool: compare it, as in `truth is Truth.TRUE`")

    def __repr__(self) -> str:
        return self.name

    @staticmethod
    def of(condition: bool) -> Truth:
        """Return TRUE or FALSE for a Python condition."""
        return Truth.TRUE if condition else Truth.FALSE


class Void(Enum):
    """Type of VOID, the result of an operation that makes "the complete selector always false".

    VOID is not a fourth truth value: anywhere in a selector, also in a branch that does not decide the
    result, VOID makes the selector as a whole FALSE (seeds 000, 001 and 002).
    """

    VOID = "void"

    def __repr__(self) -> str:
        return self.name


VOID: Final = Void.VOID
"""See `Void`."""


def not_(truth: Truth) -> Truth:
    """Return NOT of a truth: swap TRUE and FALSE, keep UNKNOWN."""
    return _NEGATION[truth]


def all_of(truths: Sequence[Truth]) -> Truth:
    """Return AND: FALSE if any is FALSE, otherwise UNKNOWN if any is UNKNOWN, otherwise TRUE."""
    return next((truth for truth in (Truth.FALSE, Truth.UNKNOWN) if truth in truths), Truth.TRUE)


def any_of(truths: Sequence[Truth]) -> Truth:
    """Return OR: TRUE if any is TRUE, otherwise UNKNOWN if any is UNKNOWN, otherwise FALSE."""
    return next((truth for truth in (Truth.TRUE, Truth.UNKNOWN) if truth in truths), Truth.FALSE)


_NEGATION = {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE, Truth.UNKNOWN: Truth.UNKNOWN}


class Number:
    """Base of the six number classes: `value`, a Python int or float within the class's range."""

    __slots__ = ()
    value: int | float

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class _Integer(Number):
    __slots__ = ()
    value: int
    BITS: ClassVar[int]

    def __post_init__(self) -> None:
        value = self.value
        if type(value) is not int:
            raise TypeError(f"{type(self).__name__} takes an int, not {value!r}")
        if value.bit_length() >= self.BITS and value != -1 << (self.BITS - 1):  # -2**63 has 64 bits and fits
            raise ValueError(f"the number is outside the range of a Java {type_name(self)}")


class _Floating(Number):
    __slots__ = ()
    value: float

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Floating) or type(other) is not type(self):
            return NotImplemented
        return _double_bits(self.value) == _double_bits(other.value)

    def __hash__(self) -> int:
        return hash((type(self), _double_bits(self.value)))


@dataclass(frozen=True, slots=True, repr=False)
class Byte(_Integer):
    """Java byte, -128 to 127."""

    value: int
    BITS: ClassVar[int] = 8


@dataclass(frozen=True, slots=True, repr=False)
class Short(_Integer):
    """Java short, -32768 to 32767."""

    value: int
    BITS: ClassVar[int] = 16


@dataclass(frozen=True, slots=True, repr=False)
class Int(_Integer):
    """Java int of 32 bits."""

    value: int
    BITS: ClassVar[int] = 32


@dataclass(frozen=True, slots=True, repr=False)
class Long(_Integer):
    """Java long of 64 bits; the type of a plain Python int and of an exact numeric literal."""

    value: int
    BITS: ClassVar[int] = 64


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Float(_Floating):
    """Java float; the value is rounded once, to nearest, ties to even."""

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", to_float32(_number(self.value, "Float")))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Double(_Floating):
    """Java double; the type of a plain Python float and of an approximate numeric literal."""

    value: float

    def __post_init__(self) -> None:
        if type(self.value) is not float:
            object.__setattr__(self, "value", to_double(_number(self.value, "Double")))


Value = bool | str | bytes | Byte | Short | Int | Long | Float | Double


class Mismatch(Enum):
    """Type of MISMATCH, the result of arithmetic on a non-number."""

    MISMATCH = "mismatch"


MISMATCH: Final = Mismatch.MISMATCH
"""Result of arithmetic on a non-number: it dominates NULL and makes the comparison one of unlike types."""


class Unsupported(Enum):
    """Type of UNSUPPORTED, a value of a type that no property has."""

    UNSUPPORTED = "unsupported"


UNSUPPORTED: Final = Unsupported.UNSUPPORTED
"""Value of a type that no property has, such as a timestamp in a column: not NULL, and of an unlike type to
every value, even another of its own type."""

Unlike = TypeVar("Unlike", bound=Truth | Void)
"""Result of a comparison of unlike types, which the dialect sets."""

Operand = Value | None | OneOf[Mismatch.MISMATCH, Unsupported.UNSUPPORTED]
"""Operand of an operator: a value, NULL (``None``), MISMATCH or UNSUPPORTED."""

INTEGERS: Final[dict[str, type[Byte | Short | Int | Long]]] = {
    "byte": Byte,
    "short": Short,
    "int": Int,
    "long": Long,
}
FLOATS: Final[dict[str, type[Float | Double]]] = {"float": Float, "double": Double}
"""Classes of numbers by the name of the type."""

TYPE_NAMES: Final[dict[type, str]] = {
    bool: "boolean",
    **{kind: name for name, kind in (INTEGERS | FLOATS).items()},
    str: "string",
    bytes: "byte string",
}
"""Name of each type of value: Java's, or IBM MQ's where Java has no such type."""


def type_name(value: object) -> str:
    """Return the name of the type of `value`; "NULL" for ``None``."""
    if value is None or value is UNSUPPORTED:
        return "NULL" if value is None else "unsupported"
    return TYPE_NAMES.get(type(value), "mismatch")


def coerce(thing: object) -> Value | None:
    """Return the value of a plain Python object: an integer becomes a long, a float a double.

    Values and ``None`` stay as they are. Raises ValueError for an integer outside 64 bits, TypeError for
    another type.
    """
    if thing is None or isinstance(thing, bool | bytes | Byte | Short | Int | Long | Float | Double):
        return thing
    if isinstance(thing, str):
        return str(thing)
    if isinstance(thing, int | Integral):  # those of NumPy, too
        return Long(int(thing))
    if isinstance(thing, float):
        return Double(float(thing))
    name = type(thing).__name__
    plain = "bool(…), int(…), float(…) or str(…)"
    remedy = "milliseconds since 1970" if name in ("datetime", "datetime64", "Timestamp") else plain
    raise TypeError(f"no property can hold a {name}: write {remedy}")


def to_float32(number: int | float) -> float:
    """Return the Java float nearest to `number`, ties to even, by one rounding, also for a long.

    A number that is too large becomes an infinity, as in Java's ``(float)``.
    """
    if isinstance(number, int):
        magnitude = abs(number)
        surplus = magnitude.bit_length() - 24
        if surplus > 0:  # going through a double would round twice
            magnitude, rest = magnitude >> surplus, magnitude & ((1 << surplus) - 1)
            half = 1 << (surplus - 1)
            magnitude += rest > half or (rest == half and magnitude & 1)
            try:
                number = math.copysign(math.ldexp(magnitude, surplus), number)
            except OverflowError:
                number = math.inf if number > 0 else -math.inf
    try:
        narrowed: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return narrowed


def to_double(number: int | float) -> float:
    """Return the Java double nearest to `number`; an int too large becomes an infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def positive_zero(operand: Operand) -> Operand:
    """Return the operand, a negative zero as the positive one (seed 002: "treated the same")."""
    if isinstance(operand, Float | Double) and operand.value == 0.0:
        return type(operand)(0.0)
    return operand


def arithmetic(op: str, left: Operand, right: Operand) -> Operand:
    """Return ``left op right`` for ``+ - * /`` after binary numeric promotion.

    A non-number gives MISMATCH, otherwise NULL gives NULL. Integers wrap at 32 or 64 bits, their division
    truncates, and by zero has no value: NULL. Floats and doubles follow IEEE 754.
    """
    if _not_numeric(left) or _not_numeric(right):
        return MISMATCH
    if left is None or right is None:
        return None
    assert isinstance(left, Number) and isinstance(right, Number)
    kind = promoted(left, right)
    if kind is Float or kind is Double:
        return kind(_FLOATING_OPERATION[op](convert(left, kind), convert(right, kind)))
    dividend, divisor = int(left.value), int(right.value)
    if op == "/":
        return _wrapped(kind, _truncated(dividend, divisor)) if divisor else None
    return _wrapped(kind, EXACT_OPERATIONS[op](dividend, divisor))


def negate(operand: Operand) -> Operand:
    """Return ``-operand`` after unary promotion; the smallest int and long are their own negatives."""
    promoted_operand = plus(operand)
    if isinstance(promoted_operand, Float | Double):
        return type(promoted_operand)(-promoted_operand.value)
    if isinstance(promoted_operand, Int | Long):
        return _wrapped(type(promoted_operand), -promoted_operand.value)
    return promoted_operand


def plus(operand: Operand) -> Operand:
    """Return ``+operand``: unary promotion makes an int of a byte or short and leaves other numbers."""
    if _not_numeric(operand):
        return MISMATCH
    return Int(operand.value) if isinstance(operand, Byte | Short) else operand


def compare(
    op: str, left: Operand, right: Operand, unlike: Unlike, *, promotes: bool = True
) -> Truth | Unlike:
    """Return the truth of ``left op right`` for ``= <> < <= > >=``.

    MISMATCH is `unlike`, even with NULL; NULL is UNKNOWN; numbers compare after binary numeric promotion, or
    if not `promotes` only with numbers of their own type; two strings, booleans or byte strings by ``=`` and
    ``<>`` only; everything else is `unlike`.
    """
    if left is MISMATCH or right is MISMATCH:
        return unlike
    if left is None or right is None:
        return Truth.UNKNOWN
    if isinstance(left, Number) and isinstance(right, Number) and (promotes or type(left) is type(right)):
        kind = promoted(left, right)
        return Truth.of(_COMPARISON[op](convert(left, kind), convert(right, kind)))
    comparable = type(left) is type(right) and left is not UNSUPPORTED and not isinstance(left, Number)
    if comparable and op in ("=", "<>"):
        return Truth.of((left == right) == (op == "="))
    return unlike


def promoted(left: Number, right: Number) -> type[Int | Long | Float | Double]:
    """Return the type that binary numeric promotion (JLS 5.6.2) gives both operands."""
    for kind in (Double, Float, Long):
        if isinstance(left, kind) or isinstance(right, kind):
            return kind
    return Int


def convert(number: Number, kind: type[Number]) -> int | float:
    """Return the Python value of `number` widened to `kind`; a long may lose digits, as in Java."""
    value = number.value
    if kind is Float:
        return to_float32(value)
    return float(value) if kind is Double else value


def _not_numeric(operand: Operand) -> bool:
    return operand is not None and not isinstance(operand, Number)


def _wrapped(kind: type[Number], value: int) -> Int | Long:
    """Return `value` modulo 2**32 or 2**64, as Java's overflowing int or long."""
    width: type[Int | Long] = Long if kind is Long else Int
    half = 1 << (width.BITS - 1)
    return width((value + half) % (2 * half) - half)


def _truncated(dividend: int, divisor: int) -> int:
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _ieee_divide(dividend: float, divisor: float) -> float:
    if divisor:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def _number(thing: object, kind: str) -> int | float:
    if not isinstance(thing, int | float) or isinstance(thing, bool):
        raise TypeError(f"{kind} takes a number, not {thing!r}")
    return thing


def _double_bits(value: float) -> bytes:
    return _DOUBLE.pack(math.nan if math.isnan(value) else value)


_FLOAT32 = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")

# Two floats' sum, difference, product and quotient are computed as doubles and then rounded to float: with
# 53 >= 2 * 24 + 2 digits the first rounding never changes the second.
_FLOATING_OPERATION: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _ieee_divide,
}
EXACT_OPERATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_COMPARISON: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
