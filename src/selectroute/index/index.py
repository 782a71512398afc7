"""Mutable index: subscriptions are added and removed, single messages are matched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from types import NoneType

from selectroute.clauses.access import Key, equalities, message_key, scan_reason
from selectroute.clauses.predicate import ClauseLiteral, NotVoid
from selectroute.index.compile.build import freeze, paused_collector
from selectroute.index.compile.keys import SCAN, Attributes, FiledClause, KeyPlan, KeyStatistics, file_clause
from selectroute.index.errors import DuplicateSubscriptionError, UnknownSubscriptionError
from selectroute.index.snapshot import Snapshot
from selectroute.index.specification import KEEP, IndexedSubscription, Keep, prepare
from selectroute.selector.arguments import check_argument, check_iterable
from selectroute.selector.dialect import EXTENDED
from selectroute.selector.evaluate import Lookup
from selectroute.selector.explain import Explanation
from selectroute.selector.extended import provider_matches
from selectroute.selector.fields import identifier_of
from selectroute.selector.limits import DEFAULT_LIMITS, UNLIMITED, Limits
from selectroute.selector.message import ONE_MESSAGE, Message
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.selector import Selector
from selectroute.selector.sentences import counted
from selectroute.selector.values import Truth, Value, Void
from selectroute.topics.filter import TOPIC, TopicFilter, level_value


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


@dataclass(slots=True)
class MatchCounts:
    """Cost of matching one message, and the EXTENDED subscriptions without a verdict (2551)."""

    probes: int = 0
    candidates: int = 0
    refused: tuple[str, ...] = ()


class Index:
    """Subscriptions by the equalities that their selectors share.

    A clause of a selector is filed under the tuple of its equality constants, e.g. (JMSType, color) = ('car',
    'blue'). A message looks up one bucket for each tuple of attributes in use and judges only the clauses
    there, and the scan list of clauses without an equality. Not thread-safe. `limits` apply to selectors
    given as text.

    >>> index = Index()
    >>> index.add("sub-1", "JMSType = 'car' AND weight > 2500", topic="cars/+")
    >>> index.match(Message(headers={"JMSType": "car"}, properties={"weight": 3000}, topic="cars/eu"))
    ['sub-1']
    """

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        check_argument(limits, Limits, "limits", "the Limits of a selector, or leave it out")
        self._limits = limits
        self.last_match = MatchCounts()
        """Cost of the latest `match`."""
        self.statistics = KeyStatistics()
        """Number of clauses of each key of each attribute."""
        self._plan = KeyPlan(self.statistics)
        self._subscriptions: dict[str, IndexedSubscription] = {}
        self._filed: dict[str, tuple[FiledClause, ...]] = {}
        self._extended: set[str] = set()
        self._buckets: dict[Attributes, dict[tuple[Key, ...], dict[FiledClause, None]]] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __repr__(self) -> str:
        return f"Index({len(self):,} subscription{'' if len(self) == 1 else 's'})"

    def __contains__(self, subscription: str) -> bool:
        return subscription in self._subscriptions

    def __iter__(self) -> Iterator[IndexedSubscription]:
        """Return the subscriptions in the order of their addition, which is that of a snapshot's ordinals."""
        return iter(self._subscriptions.values())

    def __getitem__(self, subscription: str) -> IndexedSubscription:
        """Return a subscription. Raises `UnknownSubscriptionError`. O(1)."""
        check_argument(subscription, str, "subscription", "its id, such as 'heavy'")
        try:
            return self._subscriptions[subscription]
        except KeyError:
            raise UnknownSubscriptionError(subscription) from None

    def add(
        self,
        subscription: str,
        selector: Selector | str | None = None,
        topic: str | None = None,
        *,
        dialect: str = "jms",
        extended: bool = False,
    ) -> None:
        """Register a subscription: without a selector it matches every message, without a topic every topic.

        A selector given as text is in the `dialect`. With `extended` the text is left to the extended
        selection provider (see ``selector.extended``), in a dialect that has extended selection.

        Raises `DuplicateSubscriptionError`, `InvalidSelectorError`, `InvalidTopicFilterError` or, for an id
        that is not 1 to 128 of ``A-Z a-z 0-9 . _ -``, `InvalidIdError`; then nothing is changed. O(size of
        the selector).
        """
        check_argument(subscription, str, "subscription", "its id, such as 'heavy'")
        if subscription in self._subscriptions:
            raise DuplicateSubscriptionError(subscription)
        self._file(prepare(subscription, selector, topic, dialect, extended, self._limits))

    def add_many(self, subscriptions: Iterable[tuple[str, Selector | str | None, str | None]]) -> None:
        """Register (id, selector, topic) triples as `add` does, about a quarter faster than one by one.

        Raises the error of `add` for the first invalid one; those before it stay registered.
        """
        check_iterable(subscriptions, "subscriptions", "(id, selector, topic) tuples")
        with paused_collector():
            for number, row in enumerate(subscriptions):
                try:
                    subscription, selector, topic = row
                except (TypeError, ValueError):
                    shown = repr(row)
                    raise ValueError(
                        f"subscription {number:,} is {shown[:80]}{'…' if len(shown) > 80 else ''}: "
                        "give (id, selector, topic)"
                    ) from None
                self.add(subscription, selector, topic)

    def replace(
        self,
        subscription: str,
        selector: Selector | str | None,
        topic: str | Keep | None = KEEP,
        *,
        dialect: str = "jms",
        extended: bool = False,
    ) -> None:
        """Change a subscription's selector, and its topic filter if one is given, but not its order.

        Raises the errors of `add`, and `UnknownSubscriptionError`; then nothing is changed. O(size of both
        selectors).
        """
        old = self[subscription]
        kept = old.topic if isinstance(topic, Keep) else topic
        new = prepare(subscription, selector, kept, dialect, extended, self._limits)
        self._unfile(subscription)
        self._file(new)

    def remove(self, subscription: str) -> None:
        """Remove a subscription. Raises `UnknownSubscriptionError`. O(size of the selector)."""
        self[subscription]  # raises
        self._unfile(subscription)
        del self._subscriptions[subscription]
        del self._filed[subscription]

    def match(self, message: Message) -> list[str]:
        """Return the subscriptions that the message satisfies, each once, in any order.

        O(tuples of attributes in use + candidates); ``last_match`` has the counts.
        """
        check_argument(message, Message, "message", ONE_MESSAGE)
        lookup = _lookup(message)
        matched: dict[str, None] = {}
        guards: dict[int, bool] = {}  # the clauses of a selector share one guard
        counters = MatchCounts()
        for attributes, buckets in self._buckets.items():
            counters.probes += 1
            bucket = buckets.get(_probe(attributes, lookup))  # type: ignore[arg-type]  # a key with None is in no bucket
            if bucket is not None:
                counters.candidates += len(bucket)
                for filed in bucket:
                    if (
                        filed.subscription not in matched
                        and not (filed.clause.valid_names and lookup(INVALID_NAMES) is True)
                        and all(_holds(literal, lookup, guards) for literal in filed.residual)
                    ):
                        matched[filed.subscription] = None
        if self._extended:
            counters.refused = self._judge_extended(message, matched)
        self.last_match = counters
        return list(matched)

    def _judge_extended(self, message: Message, matched: dict[str, None]) -> tuple[str, ...]:
        """Remove subscriptions that the provider does not match or cannot judge; return the latter."""
        refused = []
        for name in self._extended & matched.keys():
            verdict = provider_matches(self._subscriptions[name].selector, message)
            if not verdict:
                del matched[name]
            if verdict is None:
                refused.append(name)
        return tuple(sorted(refused))

    def explain(self, subscription: str, message: Message) -> MatchExplanation:
        """Return why a subscription matches or not: access paths, candidates, the truth of each part.

        Raises `UnknownSubscriptionError`. O(size of the selector).
        """
        check_argument(message, Message, "message", ONE_MESSAGE)
        known = self[subscription]
        lookup = _lookup(message)
        steps = []
        for filed in self._filed[subscription]:
            probe = _probe(filed.attributes, lookup)
            is_reached = all(key in keys for key, keys in zip(probe, filed.keys, strict=True))
            bucket = self._buckets[filed.attributes].get(probe) if is_reached else None  # type: ignore[arg-type]
            steps.append(
                AccessStep(
                    attributes=filed.attributes,
                    keys=filed.keys,
                    probe=probe,
                    candidates=len(bucket) if bucket is not None else 0,
                    reason=scan_reason(filed.clause) if filed.attributes == SCAN else None,
                    residual=tuple((literal, literal.predicate.truth(lookup)) for literal in filed.residual),
                    refused=filed.clause.valid_names and lookup(INVALID_NAMES) is True,
                )
            )
        is_extended = known.seltype == EXTENDED
        selector = Selector("" if is_extended else known.selector, known.dialect, limits=UNLIMITED)
        verdict = provider_matches(known.selector, message) if is_extended else selector.matches(message)
        topic_matches = known.topic is None or TopicFilter.parse(known.topic).matches(message.topic)
        return MatchExplanation(
            subscription=subscription,
            matched=topic_matches and verdict is True and not any(step.refused for step in steps),
            seltype=known.seltype,
            provider=verdict if is_extended else None,
            topic=known.topic,
            topic_matches=topic_matches,
            steps=tuple(steps),
            selector=selector.explain(message),
        )

    def freeze(self, revision: int | None = None) -> Snapshot:
        """Return an immutable snapshot for the kernel: the keys are planned anew and the arrays built.

        O(total size of the selectors).
        """
        check_argument(
            revision, (int, NoneType), "revision", "a number, or None for one that is not known yet"
        )
        return Snapshot.of(freeze(self, revision))

    def _file(self, subscription: IndexedSubscription) -> None:
        filed = []
        for clause in subscription.clauses:
            equal = equalities(clause)
            if not equal.satisfiable:
                continue
            self.statistics.add(equal)
            attributes = self._plan.path(equal, len(subscription.clauses))
            if len(attributes) == 2:
                self._plan.pairs[attributes] += 1
            entry = file_clause(subscription.id, clause, equal, attributes)
            buckets = self._buckets.setdefault(attributes, {})
            for keys in product(*entry.keys):
                buckets.setdefault(keys, {})[entry] = None
            filed.append(entry)
        self._subscriptions[subscription.id] = subscription
        self._filed[subscription.id] = tuple(filed)
        if subscription.seltype == EXTENDED:
            self._extended.add(subscription.id)

    def _unfile(self, subscription: str) -> None:
        self._extended.discard(subscription)
        for entry in self._filed[subscription]:
            self.statistics.add(equalities(entry.clause), sign=-1)
            buckets = self._buckets[entry.attributes]
            for keys in product(*entry.keys):
                del buckets[keys][entry]
                if not buckets[keys]:
                    del buckets[keys]
            if not buckets:
                del self._buckets[entry.attributes]
            if len(entry.attributes) == 2:
                self._plan.pairs[entry.attributes] -= 1
                if not self._plan.pairs[entry.attributes]:
                    del self._plan.pairs[entry.attributes]


def _holds(literal: ClauseLiteral, lookup: Lookup, guards: dict[int, bool]) -> bool:
    if not isinstance(literal.predicate, NotVoid):
        return literal.holds(lookup)
    known = guards.get(id(literal.predicate))
    if known is None:
        known = guards[id(literal.predicate)] = literal.holds(lookup)
    return known


def _lookup(message: Message) -> Lookup:
    def value(name: str) -> Value | None:
        return level_value(name, message.topic) if name.startswith(TOPIC) else message.value(name)

    return value


def _probe(attributes: Attributes, lookup: Lookup) -> tuple[Key | None, ...]:
    return tuple([message_key(lookup(name)) for name in attributes])
