"""What a queue is told when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from selectroute.selector.dialect import dialect as dialect_named

MAX_MESSAGE_LENGTH: Final = 4_194_304
"""Bytes of a body, IBM's default MAXMSGL."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The attributes of a queue. Raises ValueError, or UnknownDialectError, for one that cannot be."""

    order: Literal["priority", "fifo"] = "priority"
    """MSGDLVSQ: the most urgent first and then by arrival, or by arrival alone."""

    default_priority: int = 4
    """0 to 9, of messages that are put without one."""

    default_persistence: bool = False
    max_depth: int | None = None
    """The most messages, those in units too; None for any number."""

    max_message_length: int = MAX_MESSAGE_LENGTH
    """Bytes of a body."""

    dialect: str = "ibm-jms"
    """The dialect of selectors that are given as text."""

    def __post_init__(self) -> None:
        if self.order not in ("priority", "fifo"):
            raise ValueError(f"the order of a queue is priority or fifo, not {self.order!r}")
        if not 0 <= self.default_priority <= 9:
            raise ValueError(f"a priority is 0 to 9, not {self.default_priority!r}")
        if self.max_depth is not None and self.max_depth < 0:
            raise ValueError("the depth of a queue is not below 0")
        if self.max_message_length < 0:
            raise ValueError("the length of a message is not below 0")
        dialect_named(self.dialect)
