"""Settings of a queue, and its description."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

from selectroute.selector.dialect import dialect as dialect_named

MAX_MESSAGE_LENGTH: Final = 4_194_304
"""Bytes of a body at most: IBM's default MAXMSGL."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Attributes of a queue. Raises ValueError or UnknownDialectError for an invalid one."""

    order: Literal["priority", "fifo"] = "priority"
    """MSGDLVSQ: by priority and then arrival, or by arrival alone."""

    default_priority: int = 4
    """Priority, 0 to 9, of messages that are put without one."""

    default_persistence: bool = False
    max_depth: int | None = None
    """Messages at most, including those in units; None for no limit."""

    max_message_length: int = MAX_MESSAGE_LENGTH
    """Bytes of a body at most."""

    dialect: str = "ibm-jms"
    """Dialect of selectors given as text."""

    def __post_init__(self) -> None:
        if self.order not in ("priority", "fifo"):
            raise ValueError(f"the order of a queue must be priority or fifo, not {self.order!r}")
        if not 0 <= self.default_priority <= 9:
            raise ValueError(f"a priority must be 0 to 9, not {self.default_priority!r}")
        if self.max_depth is not None and self.max_depth < 0:
            raise ValueError("the depth of a queue must be 0 or more")
        if self.max_message_length < 0:
            raise ValueError("the length of a message must be 0 or more")
        dialect_named(self.dialect)


class QueueDescription(NamedTuple):
    """Queue: its name, its settings, and its count of messages available to a get now."""

    name: str
    settings: QueueSettings
    depth: int
    oldest: datetime | None = None
    """Time of the put of the available message that has been on the queue longest."""

    waiting: int | None = None
    """Number of gets that wait in the process of the service; None if it is not known."""
