"""Parameters that select a message: those of IBM MQ's messaging REST API, and additional ones."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from selectroute.queues.errors import MQRC_CORREL_ID_ERROR, MQRC_GROUP_ID_ERROR
from selectroute.queues.lookup.match import MatchOptions, match_of
from selectroute.queues.rest.ids import id_of_any_text, message_id_of, token_of_text
from selectroute.selector.fields import id_to_text
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.selector import Selector

_NAMES: Final = (
    "messageId",
    "correlationId",
    "groupId",
    "msgSeqNumber",
    "offset",
    "msgToken",
    "selector",
    "dialect",
)


class LookupParams(NamedTuple):
    """Match options as texts; all that are not None must agree."""

    message_id: str | None = None
    correlation_id: str | None = None
    group_id: str | None = None
    msg_seq_number: int | None = None
    offset: int | None = None
    msg_token: str | None = None
    selector: str | None = None
    dialect: str | None = None
    """Dialect of the selector; None for the queue's."""

    @classmethod
    def of(cls, options: MatchOptions) -> LookupParams:
        """Return match options as texts. Raises MQError as `Queue.get`, but for the selector."""
        fields: MatchOptions = {**options, "selector": None}
        match, selector = match_of("", **fields), options.get("selector")
        return cls(
            id_to_text(match.msg_id),
            id_to_text(match.correl_id),
            id_to_text(match.group_id),
            match.msg_seq_number,
            match.offset,
            None if match.msg_token is None else match.msg_token.hex(),
            selector.text if isinstance(selector, Selector) else selector,
            selector.dialect if isinstance(selector, Selector) else None,
        )

    def options(self, dialect: str | None = None, limits: Limits = DEFAULT_LIMITS) -> MatchOptions:
        """Return the match options. Raises RestError and InvalidSelectorError.

        A selector is parsed in its dialect, or else in this one; without either it stays a text.
        """
        token, selector, chosen = self.msg_token, self.selector, self.dialect or dialect
        return {
            "msg_id": None if self.message_id is None else message_id_of(self.message_id, "messageId"),
            "correl_id": _octets(self.correlation_id, "correlationId", MQRC_CORREL_ID_ERROR),
            "group_id": _octets(self.group_id, "groupId", MQRC_GROUP_ID_ERROR),
            "msg_seq_number": self.msg_seq_number,
            "offset": self.offset,
            "msg_token": None if token is None else token_of_text(token, "msgToken"),
            "selector": Selector(selector, chosen, limits=limits) if selector and chosen else selector,
        }

    def body(self) -> dict[str, Any]:
        """Return the conditions as members of a request's body, or as parameters of a URL."""
        return {name: value for name, value in zip(_NAMES, self, strict=True) if value is not None}


def _octets(text: str | None, place: str, reason: int) -> bytes | None:
    return None if text is None else id_of_any_text(text, place, reason)
