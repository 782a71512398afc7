"""Errors that end a link, a session or a connection, with the conditions of AMQP 1.0 (part 2, section 8)."""

from __future__ import annotations

from typing import Any, Final

DECODE_ERROR: Final = "amqp:decode-error"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
ILLEGAL_STATE: Final = "amqp:illegal-state"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_ALLOWED: Final = "amqp:not-allowed"
NOT_FOUND: Final = "amqp:not-found"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"
INTERNAL_ERROR: Final = "amqp:internal-error"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
CONNECTION_FORCED: Final = "amqp:connection:forced"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
UNKNOWN_TRANSACTION: Final = "amqp:transaction:unknown-id"


class AmqpError(Exception):
    """Error that the other end is told of.

    Args:
        condition: its symbol.
        description: a sentence.
        info: further facts, by symbols.
    """

    def __init__(self, condition: str, description: str, info: dict[Any, Any] | None = None) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description
        self.info = info

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}"
