"""Filing by prefixes: a clause with ``LIKE 'abc%'`` and no equality.

A value has many prefixes, so they are not keys of an attribute: they are sorted, each has its longest other
prefix as parent, and a value is looked up for its longest prefix, whose ancestors are the shorter ones::

    prefix   "a"   "ab"   "abcd"   "b"         value "abcx" → last that is not greater: "ab"
    parent   -1    0      1        -1                       → leaves of "ab" and of "a"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from selectroute.arrays import tables as t


class Prefixes(NamedTuple):
    """Prefixes of each attribute, ascending by their bytes."""

    of_attribute: dict[int, list[bytes]]

    def first(self, attributes: int) -> t.Array:
        """Return the offsets of the prefixes of each attribute."""
        counts = [len(self.of_attribute.get(attribute, ())) for attribute in range(attributes)]
        return np.cumsum([0, *counts])

    def arrays(self, attributes: int) -> dict[str, t.Array]:
        """Return the arrays ``prefix…`` of `Tables`, except the leaves."""
        texts = [text for attribute in sorted(self.of_attribute) for text in self.of_attribute[attribute]]
        first = self.first(attributes)
        parents: list[int] = []
        for attribute in range(attributes):
            above: list[int] = []
            for number in range(first[attribute], first[attribute + 1]):
                while above and not texts[number].startswith(texts[above[-1]]):
                    above.pop()
                parents.append(above[-1] if above else -1)
                above.append(number)
        return {
            "prefix_first": first,
            "prefix_parent": np.array(parents, np.int32),
            "prefix_key": np.array([prefix_key(text) for text in texts], np.int64),
            "prefix_byte_first": np.cumsum([0, *map(len, texts)]),
            "prefix_bytes": np.frombuffer(b"".join(texts), np.uint8),
        }


def prefix_key(text: bytes) -> int:
    """Return the first eight bytes, padded with zeros, as a long in the order of the bytes."""
    return int.from_bytes(text[:8].ljust(8, b"\0"), "big") - (1 << 63)


class PrefixFiling(NamedTuple):
    """Residuals with a prefix: attribute and prefix of each, and the rest of the residual, or -1."""

    residual: list[int]
    attribute: list[int]
    prefix: list[bytes]
    left: list[int]


def prefix_filing(residuals: Sequence[int], others: dict[str, t.Array]) -> PrefixFiling:
    """Return the prefixes of residuals with a LIKE that must be TRUE.

    The rest of a residual that the prefix decides in part is added to ``others``, the arrays of programs.
    """
    candidates = _patterns(others)
    term_first, programs, wanted = (others[name] for name in ("term_first", "term_program", "term_wanted"))
    filing = PrefixFiling([], [], [], [])
    lengths: list[int] = []
    added: list[int] = []
    if not candidates:
        return filing
    for residual in residuals:
        terms = range(term_first[residual], term_first[residual + 1])
        likes = [term for term in terms if wanted[term] and int(programs[term]) in candidates]
        if not likes:
            continue
        term = max(likes, key=lambda like: len(candidates[int(programs[like])][1]))
        attribute, prefix, exact = candidates[int(programs[term])]
        left = residual
        if exact:
            rest = [other for other in terms if other != term]
            left = len(term_first) - 1 + len(lengths) if rest else -1
            if rest:
                lengths.append(len(rest))
                added += rest
        filing.residual.append(residual)
        filing.attribute.append(attribute)
        filing.prefix.append(prefix)
        filing.left.append(left)
    if lengths:
        others["term_first"] = np.append(term_first, term_first[-1] + np.cumsum(lengths))
        others["term_program"] = np.append(programs, programs[added])
        others["term_wanted"] = np.append(wanted, wanted[added])
    return filing


def _patterns(others: Mapping[str, t.Array]) -> dict[int, tuple[int, bytes, bool]]:
    """Return for each program that is a LIKE with a prefix: attribute, prefix, and whether it is exact."""
    step_first, step = others["step_first"], others["step"].reshape(-1, 3)
    item_first, item = others["item_first"], others["item"]
    sizes = np.diff(step_first)
    patterns = {}
    for program in np.flatnonzero(step[step_first[:-1], 0] == t.LIKE):
        first = step_first[program]
        if sizes[program] > 2 or (sizes[program] == 2 and step[first + 1, 0] != t.CHECK_TYPE):
            continue
        attribute, pattern = int(step[first, 1]), int(step[first, 2])
        symbols = item[item_first[pattern] : item_first[pattern + 1]].tolist()
        plain = next((i for i, symbol in enumerate(symbols) if symbol < 0), len(symbols))
        if plain:
            prefix = "".join(map(chr, symbols[:plain])).encode("utf-8", "surrogatepass")
            patterns[int(program)] = (attribute, prefix, symbols[plain:] == [t.ANY_MANY])
    return patterns
