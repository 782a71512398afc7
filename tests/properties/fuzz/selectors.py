"""Mutated selectors, each held to what must be true of every text.

``python -m tests.properties.fuzz.selectors``

Every text is a selector or an InvalidSelectorError whose span lies in it and which can be shown. A selector
prints; what was printed is equal when it is parsed, and prints the same; it has a truth on every message, the
same as its explanation; its clauses are within their bounds and hold exactly where it is TRUE. And none takes
long: a text that needs more than HANG seconds of processor time is a failure, and the slowest are shown.

A text is made from the seed, the dialect and its number alone, so that any one can be made again.
"""

from __future__ import annotations

import argparse
import heapq
import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Final

from selectroute.clauses.normal_form import MAX_CLAUSES, MAX_LITERALS, clauses_of
from selectroute.selector import (
    DIALECTS,
    KINDS,
    Byte,
    Double,
    Float,
    Int,
    InvalidSelectorError,
    Message,
    Selector,
    Short,
    Truth,
    dialect,
)
from selectroute.selector.limits import DEFAULT_LIMITS, UNLIMITED, Limits
from selectroute.selector.message import HEADER_TYPES
from tests.properties.fuzz.mutations import damaged, generated, noise, seeds, words
from tests.support.corpus_rows import rows

HANG: Final = 20.0
"""Seconds of processor time, a thousand times what the slowest text needs: this is for what never ends."""

SLOWEST_SHOWN: Final = 3
VALUES: Final = (
    None, True, False, "", "a", "x", "car", "it's", "1", "😀", b"a", bytes(24), 0, 1, -1, 5, 2**31, 2**53 + 1,
    -(2**63), Byte(-128), Short(7), Int(2**31 - 1), Int(5), Float(0.1), Float(-0.0), Float(2.0**24), 0.1, 5.0,
    1e308, Double(float("nan")), Double(float("inf")),
)  # fmt: skip


_NAME: Final = re.compile(r"[^\W\d][\w.]*")
_STRING: Final = re.compile(r"'((?:[^'\ud800-\udfff]|'')*)'")
_INTEGER: Final = re.compile(r"\b[0-9]{1,18}\b", re.ASCII)


class Hang(BaseException):  # no `except Exception` may swallow it
    """A text took more than HANG seconds."""


@dataclass(frozen=True, slots=True)
class Case:
    """What one text is checked with."""

    text: str
    dialect: str
    limits: Limits
    messages: Sequence[Message]
    thorough: bool
    """Whether it is explained, too, and turned into clauses: that takes longer than all the rest."""


@dataclass(slots=True)
class Tally:
    """What came of the texts of one dialect."""

    dialect: str
    texts: int = 0
    valid: int = 0
    seconds: float = 0.0
    """Of processor time, like every time here: what else the machine does is not in it."""

    kinds: Counter[str] = field(default_factory=Counter)
    truths: Counter[Truth] = field(default_factory=Counter)
    slowest: list[tuple[float, int, str]] = field(default_factory=list)

    def add(self, number: int, text: str, seconds: float, outcome: str) -> None:
        """Count a text; `outcome` is the error's kind or nothing."""
        self.texts += 1
        self.seconds += seconds
        self.valid += not outcome
        self.kinds[outcome] += bool(outcome)
        heapq.heappush(self.slowest, (seconds, number, text))
        if len(self.slowest) > SLOWEST_SHOWN:
            heapq.heappop(self.slowest)

    def __str__(self) -> str:
        kinds = [kind for kind in KINDS if self.kinds[kind]]
        truths = ", ".join(f"{self.truths[truth]:,} {truth.name}" for truth in Truth)
        rate = f"{self.seconds:,.0f} s of processor time, {self.texts / self.seconds:,.0f} a second"
        lines = [
            f"{self.dialect}: {self.texts:,} texts in {rate}",
            f"  {self.valid:,} selectors ({self.valid / self.texts:.0%}); judged {truths}",
            f"  {self.texts - self.valid:,} errors, {len(kinds)} of {len(KINDS)} kinds",
        ]
        for seconds, number, text in sorted(self.slowest, reverse=True):
            each = seconds / max(len(text), 1) * 1e6
            taken = f"{seconds * 1e3:,.0f} ms for {len(text):,} characters ({each:.1f} us each)"
            lines.append(f"  slow: {taken}, number {number}, {shortened(text)}")
        return "\n".join(lines)


class Fuzzer:
    """The texts of one seed and dialect, by their numbers."""

    def __init__(self, dialect: str, seed: int) -> None:
        self.dialect = dialect
        self.seed = seed
        self._seeds = seeds(dialect)
        distinct = {str(row.message): row.message for row in rows()}
        self._messages = [Message.from_json(dict(message)) for message in distinct.values()]

    def case(self, number: int) -> Case:
        """Make the text and all that it is checked with, from the number."""
        chance = Random(f"{self.seed} {self.dialect} {number}")
        drawn = chance.random()
        if drawn < 0.60:
            text = damaged(chance, chance.choice(self._seeds), self._seeds)
        elif drawn < 0.75:
            text = generated(chance, self.dialect)
        elif drawn < 0.92:
            text = damaged(chance, generated(chance, self.dialect), self._seeds)
        else:
            text = words(chance) if drawn < 0.98 else noise(chance)
        limits = chance.choices((DEFAULT_LIMITS, UNLIMITED, None), (70, 25, 5))[0]
        if limits is None:
            limits = Limits(chance.randint(0, 60), chance.randint(0, 5), chance.randint(0, 3))
        return Case(text, self.dialect, limits, list(self._judged(chance, text)), chance.random() < 0.25)

    def _judged(self, chance: Random, text: str) -> Iterator[Message]:
        """A message of the corpus, and two that have what the text speaks of, with any values and its own."""
        yield chance.choice(self._messages)
        reserved = dialect(self.dialect).reserved
        found = dict.fromkeys(_NAME.findall(text, 0, 400))
        names = [name for name in found if name not in HEADER_TYPES and name.upper() not in reserved]
        own: list[object] = [content.replace("''", "'") for content in _STRING.findall(text, 0, 400)]
        own += [int(digits) for digits in _INTEGER.findall(text, 0, 400)]
        for values in (VALUES, own * 4 + [True, Int(1), 5.0, "x"]):
            jms_type, priority = chance.choice((None, "car", "x")), chance.choice((None, 4, 5))
            headers = {"JMSType": jms_type, "JMSPriority": priority}
            yield Message(headers, {name: chance.choice(values) for name in names})


def check(case: Case, tally: Tally | None = None) -> str:
    """Check all that must be true of a text; return the error's kind, nothing for a selector.

    Raises whatever is wrong: AssertionError, or what a selector must never raise.
    """
    text = case.text
    try:
        selector = Selector(text, case.dialect, limits=case.limits)
    except InvalidSelectorError as error:
        assert error.kind in KINDS
        assert 0 <= error.span.start <= error.span.end <= len(text), "the span lies in the text"
        str(error).encode()
        json.dumps(error.to_dict())
        assert "^" in str(error), "something is underlined"
        if error.suggestion is not None:
            Selector(error.suggestion, case.dialect, limits=case.limits)
        return error.kind
    canonical = selector.canonical
    again = Selector(canonical, case.dialect, limits=UNLIMITED)
    assert again.expression == selector.expression, "what was printed parses back"
    assert again.canonical == canonical, "printing is canonical"
    truths = [selector.evaluate(message) for message in case.messages]
    if tally is not None:
        tally.truths.update(truths)
    assert all(isinstance(truth, Truth) for truth in truths)
    reads = [name for name in selector.identifiers if name not in HEADER_TYPES]
    if case.thorough and len(reads) <= 20:
        _check_thoroughly(case, selector, truths)
    return ""


def _check_thoroughly(case: Case, selector: Selector, truths: Sequence[Truth]) -> None:
    clauses = clauses_of(selector.expression, dialect(case.dialect))
    assert len(clauses) <= MAX_CLAUSES
    # Each clause may have one literal more, which says that nothing makes the whole selector false.
    assert sum(len(clause.literals) for clause in clauses) <= MAX_LITERALS + len(clauses)
    for message, truth in zip(case.messages, truths, strict=True):
        held = any(clause.holds(message.value) for clause in clauses)
        assert held is (truth is Truth.TRUE), f"clauses {held}, evaluate {truth!r} on {message!r}"
    if len(case.text) < 2_000:
        message, truth = case.messages[-1], truths[-1]
        explanation = selector.explain(message)
        assert explanation.truth is truth, f"explain {explanation.truth!r}, evaluate {truth!r} on {message!r}"
        str(explanation).encode()
        json.dumps(explanation.to_dict())


def run(fuzzer: Fuzzer, numbers: range, progress: bool = False) -> tuple[Tally, str | None]:
    """Check the texts with these numbers; return the figures, and a report of the first failure if any."""
    tally = Tally(fuzzer.dialect)
    before = signal.signal(signal.SIGVTALRM, _hang)
    said = time.monotonic()
    try:
        for number in numbers:
            case = fuzzer.case(number)
            signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
            started = time.process_time()
            try:
                outcome = check(case, tally)
            except (Exception, Hang) as problem:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                return tally, _report(fuzzer, number, case, problem)
            tally.add(number, case.text, time.process_time() - started, outcome)
            if progress and time.monotonic() - said > 10:
                said = time.monotonic()
                print(f"{fuzzer.dialect}: {tally.texts:,} of {len(numbers):,}", file=sys.stderr, flush=True)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return tally, None


def _hang(_signal: int, _frame: FrameType | None) -> None:
    raise Hang(f"more than {HANG:.0f} s of processor time")


def _report(fuzzer: Fuzzer, number: int, case: Case, problem: BaseException) -> str:
    return (
        f"{case.dialect}: {type(problem).__name__}: {problem}\n"
        f"text: {case.text!a}\nlimits: {case.limits}\n"
        f"replay: python -m tests.properties.fuzz.selectors --dialect {case.dialect} --seed {fuzzer.seed} "
        f"--start {number} --count 1 --raise"
    )


def shortened(text: str) -> str:
    """A text as it may be shown: its beginning, in ASCII."""
    return ascii(text if len(text) <= 60 else f"{text[:60]}...")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit code: 1 if a text failed."""
    parser = argparse.ArgumentParser("python -m tests.properties.fuzz.selectors", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="texts of each dialect (default 20000)")
    parser.add_argument("--dialect", action="append", choices=[*DIALECTS], help="only this; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other texts (default 1)")
    parser.add_argument("--start", type=int, default=0, help="the number of the first text (default 0)")
    parser.add_argument("--raise", action="store_true", dest="raises", help="end in a traceback")
    given = parser.parse_args(arguments)
    for name in given.dialect or DIALECTS:
        fuzzer = Fuzzer(name, given.seed)
        numbers = range(given.start, given.start + given.count)
        if given.raises:
            for number in numbers:
                check(fuzzer.case(number))
            continue
        tally, failure = run(fuzzer, numbers, progress=True)
        if failure is not None:
            print(failure)
            return 1
        print(tally, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
