"""Which message a request is for: the parameters of its URL."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Query

from selectroute.queues.request import MAX_NUMBER
from selectroute.queues.rest_lookup import Lookup
from selectroute.service.models import Dialect

_ID_HELP: Final = "ID: and 48 hexadecimal digits."
_TEXT_HELP: Final = (
    "ID: and up to 48 hexadecimal digits, padded with zeros on the right; or an application's text."
)
_MOST: Final = 2_000
_Text = Annotated[str | None, Query(max_length=_MOST)]


def _lookup(
    message_id: Annotated[_Text, Query(alias="messageId", description=_ID_HELP)] = None,
    correlation_id: Annotated[_Text, Query(alias="correlationId", description=_TEXT_HELP)] = None,
    group_id: Annotated[_Text, Query(alias="groupId", description=_TEXT_HELP)] = None,
    msg_seq_number: Annotated[int | None, Query(alias="msgSeqNumber", ge=1, le=MAX_NUMBER)] = None,
    offset: Annotated[int | None, Query(ge=0, le=MAX_NUMBER)] = None,
    msg_token: Annotated[_Text, Query(alias="msgToken", description="32 hexadecimal digits.")] = None,
    selector: Annotated[str | None, Query(description="What the message must satisfy.")] = None,
    dialect: Annotated[Dialect | None, Query(description="The selector's; the queue's by default.")] = None,
) -> Lookup:
    return Lookup(message_id, correlation_id, group_id, msg_seq_number, offset, msg_token, selector, dialect)


OfQuery = Annotated[Lookup, Depends(_lookup)]
