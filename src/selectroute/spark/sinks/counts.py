"""Counts of the outcomes of messages, for a task, a batch or a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from selectroute.index.destination import KAFKA, QUEUE

NUMBERS = ("messages", "routed", "unrouted", "dead_lettered", "deliveries", "refused", "queued", "sent")
"""Counts that are numbers, in the order of the accounting."""


@dataclass(slots=True)
class Counts:
    """Counts of the messages and deliveries of a task or a batch. A message may have many deliveries.

    ``messages`` is ``routed + unrouted + dead_lettered``. Of the ``deliveries``, ``queued`` went to queues
    and ``sent`` to Kafka. ``refused`` counts deliveries that could not be judged (see `refusal`), or that
    their destination does not accept; each is a dead letter, but not counted in ``dead_lettered`` or
    ``reasons``, which count messages. A message of which every delivery was refused is unrouted. ``policies``
    counts the unrouted messages by policy: only those of ``keep`` are listed.
    """

    messages: int = 0
    routed: int = 0
    unrouted: int = 0
    dead_lettered: int = 0
    deliveries: int = 0
    refused: int = 0
    queued: int = 0
    sent: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    policies: dict[str, int] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        """Add another task's counts."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.reasons.items():
            self.count_dead_letters(reason, count)
        for policy, count in other.policies.items():
            self.count_unrouted(policy, count)

    def count_sent(self, kind: str, count: int) -> None:
        """Count deliveries to destinations of a kind."""
        if kind == QUEUE:
            self.queued += count
        elif kind == KAFKA:
            self.sent += count

    def count_dead_letters(self, reason: str, count: int) -> None:
        """Count dead letters under their reason."""
        self.reasons[reason] = self.reasons.get(reason, 0) + count

    def count_unrouted(self, policy: str, count: int) -> None:
        """Count unrouted messages under their policy."""
        self.policies[policy] = self.policies.get(policy, 0) + count
