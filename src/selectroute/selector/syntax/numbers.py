"""Numeric literals: each dialect's part of Java's syntax (JLS 3.10.1, 3.10.2), and their exact values.

Reading a literal is O(length), whatever the exponent. An approximate literal is rounded once, from its digits
to its own type.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from functools import cache

from selectroute.selector.dialect import NumberSyntax
from selectroute.selector.values import Double, Float, Long, to_float32

LONG_MIN_MAGNITUDE = 1 << 63
"""9223372036854775808, which only a minus sign makes a long."""


class NumberError(ValueError):
    """Malformed number or number out of range; `kind` is a kind of InvalidSelectorError."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@cache
def number_pattern(syntax: NumberSyntax) -> str:
    """Return the regular expression of a numeric literal without sign: the longest alternatives first."""

    def digits(characters: str) -> str:
        if not syntax.separator:
            return f"[{characters}]+"
        return f"[{characters}](?:[{characters}{syntax.separator}]*[{characters}])?"

    decimal, hexadecimal = digits("0-9"), digits("0-9a-fA-F")
    suffixes = "".join(syntax.suffixes)
    suffix = f"[{suffixes}{suffixes.lower()}]" if suffixes else "(?!)"
    long_suffix = "[lL]?" if syntax.long_suffix else ""
    exponent = f"[eE][+-]?{decimal}"
    forms = [
        rf"{decimal}\.(?:{decimal})?(?:{exponent})?{suffix}?",
        rf"\.{decimal}(?:{exponent})?{suffix}?",
        rf"{decimal}{exponent}{suffix}?",
        rf"{decimal}{suffix}",
    ]
    if syntax.hexadecimal_floats:
        significand = rf"(?:(?:{hexadecimal})?\.{hexadecimal}|{hexadecimal}\.?)"
        forms.insert(0, rf"0[xX]{significand}[pP][+-]?{decimal}{suffix}?")
    if 16 in syntax.bases:
        forms.append(f"0[xX]{hexadecimal}{long_suffix}")
    if 2 in syntax.bases:
        forms.append(f"0[bB]{digits('01')}{long_suffix}")
    forms.append(f"{decimal}{long_suffix}")
    return "|".join(forms)


def number(word: str, syntax: NumberSyntax) -> Long | Float | Double | None:
    """Return the value of a word that `number_pattern` matches.

    None stands for 9223372036854775808, a long only under a minus sign. Raises NumberError for a number out
    of range, or with a digit that its base does not have.
    """
    if syntax.separator:
        word = word.replace(syntax.separator, "")
    prefix = word[:2].lower()
    if prefix == "0b":
        return _from_bits(word.rstrip("lL"), 2)
    if prefix == "0x" and not _HEXADECIMAL_FLOAT.search(word):
        return _from_bits(word.rstrip("lL"), 16)
    if not _EXACT.fullmatch(word):
        if not syntax.zero_before_approximate and word[0] == "0" and word[1].isdecimal():
            raise NumberError("malformed-octal")
        return _approximate(word, syntax)
    word = word.rstrip("lL")
    if word[0] == "0" and len(word) > 1 and 8 in syntax.bases:
        if "8" in word or "9" in word:
            raise NumberError("malformed-octal")
        return _from_bits(word, 8)
    word = word.lstrip("0") or "0"
    magnitude = int(word) if len(word) <= 19 else LONG_MIN_MAGNITUDE + 1  # a long has at most 19 digits
    if magnitude > LONG_MIN_MAGNITUDE:
        raise NumberError("integer-out-of-range")
    return None if magnitude == LONG_MIN_MAGNITUDE else Long(magnitude)


def _from_bits(word: str, base: int) -> Long:
    """Return the long with the 64 bits of a literal in base 2, 8 or 16: 0xFFFFFFFFFFFFFFFF is -1."""
    bits = int(word, base)  # linear for these bases, and not bound by Python's limit on digits
    if bits.bit_length() > 64:
        raise NumberError("integer-out-of-range")
    return Long(bits - (1 << 64) if bits >> 63 else bits)


def _approximate(word: str, syntax: NumberSyntax) -> Float | Double:
    hexadecimal = word[:2].lower() == "0x"
    # In a hexadecimal literal f and d are digits before the exponent, but the exponent is never missing.
    kind = syntax.suffixes.get(word[-1].upper())
    digits = word[:-1] if kind else word
    kind = kind or Double
    try:
        value = float.fromhex(digits) if hexadecimal else float(digits)
    except OverflowError:
        value = math.inf
    if kind is Float and 0 < value < math.inf:
        value = _hexadecimal_float32(digits) if hexadecimal else decimal_float32(digits, value)
    if value == math.inf:
        raise NumberError("number-too-large")
    significand = re.split("[pP]", digits[2:])[0] if hexadecimal else re.split("[eE]", digits)[0]
    if value == 0 and significand.strip("0."):
        raise NumberError("number-too-small")
    return kind(value)


def decimal_float32(digits: str, nearest: float) -> float:
    """Round `digits`, of which `nearest` is the nearest double, to a float as if in one step.

    Rounding twice goes wrong when the first rounding lands halfway between two floats. So a double that is
    not exact is first made odd (its last bit 1), which keeps it on the right side of every halfway point.
    """
    exact, rounded = Decimal(digits), Decimal.from_float(nearest)
    if exact != rounded and not int(math.ldexp(math.frexp(nearest)[0], 53)) & 1:
        nearest = math.nextafter(nearest, math.inf if exact > rounded else 0.0)
    return to_float32(nearest)


def _hexadecimal_float32(digits: str) -> float:
    """Round a hexadecimal literal to a float in one step: cut it to 53 bits, odd if anything was cut off."""
    significand, exponent_digits = re.split("[pP]", digits[2:])
    whole, _, fraction = significand.partition(".")
    bits = int(whole + fraction, 16)
    # The value is neither zero nor infinite as a double, so its exponent is short without leading zeros.
    power = int(exponent_digits.lstrip("+-").lstrip("0") or "0")
    exponent = (-power if exponent_digits[0] == "-" else power) - 4 * len(fraction)
    surplus = bits.bit_length() - 53
    if surplus > 0:
        cut = bits & ((1 << surplus) - 1)
        bits, exponent = bits >> surplus | (cut != 0), exponent + surplus
    return to_float32(math.ldexp(bits, exponent))


_EXACT = re.compile("[0-9]+[lL]?")
_HEXADECIMAL_FLOAT = re.compile("[pP]")
