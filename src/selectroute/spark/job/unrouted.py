"""Policies for messages that nobody wants, by their topic: listed, only counted, or the end of the job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.selector.errors import SelectRouteError
from selectroute.topics.filter import TopicFilter
from selectroute.topics.levels import TOPIC

KEEP, DROP, FAIL = POLICIES = ("keep", "drop", "fail")

Ints = npt.NDArray[np.int64]


class PolicyError(SelectRouteError):
    """Error: not one of `POLICIES`, or a rule that is not FILTER=POLICY."""


@dataclass(frozen=True, slots=True)
class Unrouted:
    """Policy for each topic: that of the first filter that takes it, or the default."""

    default: str = KEEP
    by_topic: tuple[tuple[TopicFilter, str], ...] = ()

    @classmethod
    def of(cls, default: str, rules: Iterable[str] = ()) -> Unrouted:
        """Return the policy of a default and of rules such as ``audit/#=fail``.

        Raises:
            PolicyError: not a rule, or not a policy.
            InvalidTopicFilterError: not a topic filter.

        >>> Unrouted.of("drop", ["audit/#=fail"]).policy("audit/eu")
        'fail'
        """
        found = []
        for rule in rules:
            text, _, policy = rule.rpartition("=")
            if not text:
                raise PolicyError(f"unrouted messages by topic are FILTER=POLICY, not {rule!r}")
            found.append((TopicFilter.parse(text), _known(policy)))
        return cls(_known(default), tuple(found))

    @property
    def reads(self) -> tuple[str, ...]:
        """Identifiers that are read of messages besides those of selectors."""
        return (TOPIC,) if self.by_topic else ()

    def never_failing(self) -> Unrouted:
        """Return the same for batches that must not end the job: where it would fail, messages are listed."""
        kept = tuple((one, KEEP if policy == FAIL else policy) for one, policy in self.by_topic)
        return Unrouted(KEEP if self.default == FAIL else self.default, kept)

    def policy(self, topic: str | None) -> str:
        """Return the policy for a topic. O(filters)."""
        return next((policy for one, policy in self.by_topic if one.matches(topic)), self.default)

    def sort(self, columns: pa.RecordBatch, rows: Ints) -> Iterator[tuple[str, Ints]]:
        """Yield these rows of some messages by their policy. O(rows + distinct topics x filters)."""
        place = columns.schema.get_field_index(TOPIC)  # -1 also where it stands twice
        if not self.by_topic or place < 0 or not _is_text(columns.schema.field(place).type):
            yield self.default, rows
            return
        topics = columns.column(place).take(pa.array(rows))
        if not pa.types.is_dictionary(topics.type):
            topics = topics.dictionary_encode()
        of_topic = [POLICIES.index(self.policy(topic)) for topic in topics.dictionary.to_pylist()]
        # One more at the end, for those without a topic.
        policies = np.array([*of_topic, POLICIES.index(self.default)], np.int8)
        codes = policies[topics.indices.fill_null(len(of_topic)).to_numpy(zero_copy_only=False)]
        for code in np.unique(codes).tolist():
            yield POLICIES[code], rows[codes == code]


def _known(policy: str) -> str:
    if policy not in POLICIES:
        raise PolicyError(f"unrouted messages are one of {', '.join(POLICIES)}, not {policy!r}")
    return policy


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
