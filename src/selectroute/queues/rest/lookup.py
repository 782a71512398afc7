"""Parameters that select a message: those of IBM MQ's messaging REST API, and additional ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from selectroute.queues.errors import MQRC_CORREL_ID_ERROR, MQRC_GROUP_ID_ERROR
from selectroute.queues.lookup.match_options import (
    CORREL_ID,
    GROUP_ID,
    MSG_ID,
    MSG_SEQ_NUMBER,
    MSG_TOKEN,
    OFFSET,
)
from selectroute.queues.rest.ids import id_of_any_text, message_id_of, token_of_text
from selectroute.queues.settings import QueueSettings
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.selector import Selector


class LookupParams(NamedTuple):
    """Conditions on a message; all that are not None must agree."""

    message_id: str | None = None
    correlation_id: str | None = None
    group_id: str | None = None
    msg_seq_number: int | None = None
    offset: int | None = None
    msg_token: str | None = None
    selector: str | None = None
    dialect: str | None = None
    """Dialect of the selector; None for the queue's."""

    def fields(self, settings: QueueSettings, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
        """Return the arguments of `Queue.get`. Raises RestError and InvalidSelectorError."""
        match = MSG_ID | CORREL_ID | GROUP_ID  # ids that are not given agree with any
        found: dict[str, Any] = {}
        selector = None
        if self.selector:
            selector = Selector(self.selector, self.dialect or settings.dialect, limits=limits)
        if self.message_id is not None:
            found["msg_id"] = message_id_of(self.message_id, "messageId")
        if self.correlation_id is not None:
            found["correl_id"] = id_of_any_text(self.correlation_id, "correlationId", MQRC_CORREL_ID_ERROR)
        if self.group_id is not None:
            found["group_id"] = id_of_any_text(self.group_id, "groupId", MQRC_GROUP_ID_ERROR)
        if self.msg_seq_number is not None:
            match |= MSG_SEQ_NUMBER
            found["msg_seq_number"] = self.msg_seq_number
        if self.offset is not None:
            match |= OFFSET
            found["offset"] = self.offset
        if self.msg_token is not None:
            match |= MSG_TOKEN
            found["msg_token"] = token_of_text(self.msg_token, "msgToken")
        return {"match": match, "selector": selector, **found}

    def params(self) -> dict[str, str]:
        """Return the conditions as parameters of a URL."""
        return {name: str(value) for name, value in self.body().items()}

    def body(self) -> dict[str, Any]:
        """Return the conditions as members of a request's body."""
        names = (
            "messageId",
            "correlationId",
            "groupId",
            "msgSeqNumber",
            "offset",
            "msgToken",
            "selector",
            "dialect",
        )
        return {name: value for name, value in zip(names, self, strict=True) if value is not None}
