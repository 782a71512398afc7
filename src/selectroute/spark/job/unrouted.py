"""Policies for unrouted messages, by topic: list them, only count them, or fail the job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.job_options import POLICIES
from selectroute.match.columns.columns import bounded_topics
from selectroute.selector.errors import SelectRouteError
from selectroute.topics.filter import TOPIC, TopicFilter

KEEP, DROP, FAIL = POLICIES

Ints = npt.NDArray[np.int64]


class PolicyError(SelectRouteError):
    """Policy that is not one of `POLICIES`, or a rule that is not FILTER=POLICY."""


@dataclass(frozen=True, slots=True)
class Unrouted:
    """Policy for each topic: that of the first filter that matches the topic, or the default."""

    default: str = KEEP
    by_topic: tuple[tuple[TopicFilter, str], ...] = ()

    @classmethod
    def of(cls, default: str, rules: Iterable[str] = ()) -> Unrouted:
        """Parse a default policy and rules such as ``audit/#=fail``.

        Raises:
            PolicyError: a rule or a policy is not valid.
            InvalidTopicFilterError: a topic filter is not valid.

        >>> Unrouted.of("drop", ["audit/#=fail"]).policy("audit/eu")
        'fail'
        """
        found = []
        for rule in rules:
            text, _, policy = rule.rpartition("=")
            if not text:
                raise PolicyError(f"a policy for unrouted messages by topic is FILTER=POLICY, not {rule!r}")
            found.append((TopicFilter.parse(text), _known(policy)))
        return cls(_known(default), tuple(found))

    @property
    def reads(self) -> tuple[str, ...]:
        """Identifiers to read in addition to those of selectors."""
        return (TOPIC,) if self.by_topic else ()

    @property
    def may_fail(self) -> bool:
        """True if an unrouted message can fail a batch."""
        return FAIL in (self.default, *(policy for _, policy in self.by_topic))

    def never_failing(self) -> Unrouted:
        """Return the same policies with `KEEP` for `FAIL`, for batches that must not fail the job."""
        kept = tuple((one, KEEP if policy == FAIL else policy) for one, policy in self.by_topic)
        return Unrouted(KEEP if self.default == FAIL else self.default, kept)

    def policy(self, topic: str | None) -> str:
        """Return the policy for a topic. O(filters)."""
        return next((policy for one, policy in self.by_topic if one.matches(topic)), self.default)

    def sort(self, columns: pa.RecordBatch, rows: Ints) -> Iterator[tuple[str, Ints]]:
        """Group these rows of messages by their policy. O(rows + distinct topics x filters)."""
        index = columns.schema.get_field_index(TOPIC)  # -1 for two columns of that name, too
        if not self.by_topic or index < 0 or not _is_text(columns.schema.field(index).type):
            yield self.default, rows
            return
        topics = bounded_topics(columns.column(index).take(pa.array(rows)))
        if not pa.types.is_dictionary(topics.type):
            topics = topics.dictionary_encode()
        of_topic = [POLICIES.index(self.policy(topic)) for topic in topics.dictionary.to_pylist()]
        # The last entry is for messages without a topic.
        policies = np.array([*of_topic, POLICIES.index(self.default)], np.int8)
        codes = policies[topics.indices.fill_null(len(of_topic)).to_numpy(zero_copy_only=False)]
        for code in np.unique(codes).tolist():
            yield POLICIES[code], rows[codes == code]


def _known(policy: str) -> str:
    if policy not in POLICIES:
        raise PolicyError(f"the policy for unrouted messages is one of {', '.join(POLICIES)}, not {policy!r}")
    return policy


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
