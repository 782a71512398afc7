"""Explanation of why a subscription matched a message or not, from the index."""

from __future__ import annotations

from dataclasses import dataclass

from selectroute.clauses.access import Key
from selectroute.clauses.predicate import ClauseLiteral
from selectroute.selector.dialect import EXTENDED
from selectroute.selector.explain import Explanation
from selectroute.selector.fields import identifier_of
from selectroute.selector.sentences import counted
from selectroute.selector.values.truth import Truth, Void


@dataclass(frozen=True, slots=True)
class AccessStep:
    """Clause with its access path: its attributes and keys, and the keys of the message.

    ``probe`` are the message's keys (``None`` for NaN, which no clause has), ``candidates`` the number of
    clauses in the bucket of these keys if this clause is in it, otherwise 0. ``reason`` says why a clause is
    on the scan list. ``residual`` are the literals that the keys do not decide, with their truth on the
    message. ``refused``: the clause requires valid property names, which the message does not have.
    """

    attributes: tuple[str, ...]
    keys: tuple[tuple[Key, ...], ...]
    probe: tuple[Key | None, ...]
    candidates: int
    reason: str | None
    residual: tuple[tuple[ClauseLiteral, Truth | Void], ...]
    refused: bool = False

    @property
    def reached(self) -> bool:
        """True if the message's keys lead to this clause."""
        return all(key in keys for key, keys in zip(self.probe, self.keys, strict=True))

    @property
    def holds(self) -> bool:
        """True if the clause is satisfied."""
        return (
            self.reached
            and not self.refused
            and all(truth is Truth.of(literal.wanted) for literal, truth in self.residual)
        )

    def __str__(self) -> str:
        if self.reason is not None:
            place = f"scan list ({self.reason})"
        else:
            parts = (
                f"{identifier_of(name)} = {' | '.join(map(_shown, keys))}"
                for name, keys in zip(self.attributes, self.keys, strict=True)
            )
            place = f"key {', '.join(parts)}"
        if not self.reached:
            return f"{place}: the message has {', '.join(map(_shown, self.probe))}"
        if self.refused:
            return f"{place}: a property name of the message breaks a rule, so the clause does not hold"
        return (
            f"{place}: {counted(self.candidates, 'candidate')}, "
            f"clause {'holds' if self.holds else 'does not hold'}"
        )


@dataclass(frozen=True, slots=True)
class MatchExplanation:
    """Verdict on one subscription and message, with its causes. ``str()`` renders a text."""

    subscription: str
    matched: bool
    topic: str | None
    topic_matches: bool
    steps: tuple[AccessStep, ...]
    selector: Explanation
    seltype: str
    provider: bool | None
    """Extended selection provider's verdict on an EXTENDED selector; None if it gave none."""

    def __str__(self) -> str:
        lines = [f"{self.subscription}: {'matched' if self.matched else 'not matched'}"]
        if self.topic is not None:
            lines.append(
                f"  topic filter {self.topic}: {'matches' if self.topic_matches else 'does not match'}"
            )
        lines += [f"  {step}" for step in self.steps] or ["  no message satisfies any of its clauses"]
        if self.seltype == EXTENDED:
            lines.append(f"  {_PROVIDER[self.provider]}")
        else:
            lines += [f"  {line}" for line in str(self.selector).splitlines()]
        return "\n".join(lines)


_PROVIDER = {
    True: "the extended selection provider matches it",
    False: "the extended selection provider does not match it",
    None: "no extended selection provider could judge its EXTENDED selector (reason 2551)",
}


def _shown(key: Key | None) -> str:
    match key:
        case None:
            return "NaN"
        case str():
            return repr(key)
        case bytes():
            return f'"0x{key.hex().upper()}"'
        case tuple():
            return " ".join(str(part) for part in key).upper() if len(key) == 1 else f"{key[1]!r}F"
        case _:
            return f"{key:g}"
