"""Parameters that select a message: those of IBM MQ's messaging REST API, and additional ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from selectroute.queues.errors import MQRC_CORREL_ID_ERROR, MQRC_GROUP_ID_ERROR
from selectroute.queues.lookup.match import MatchOptions, match_of
from selectroute.queues.rest.ids import RestError, id_of_any_text, message_id_of, token_of_text
from selectroute.selector.fields import id_to_text
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.selector import Selector


class LookupParams(NamedTuple):
    """Match options as texts, by their names in the API; all that are not None must agree."""

    messageId: str | None = None
    correlationId: str | None = None
    groupId: str | None = None
    msgSeqNumber: int | None = None
    offset: int | None = None
    msgToken: str | None = None
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
        token, selector, chosen = self.msgToken, self.selector, self.dialect or dialect
        return {
            "msg_id": None if self.messageId is None else message_id_of(self.messageId, "messageId"),
            "correl_id": _octets(self.correlationId, "correlationId", MQRC_CORREL_ID_ERROR),
            "group_id": _octets(self.groupId, "groupId", MQRC_GROUP_ID_ERROR),
            "msg_seq_number": self.msgSeqNumber,
            "offset": self.offset,
            "msg_token": None if token is None else token_of_text(token, "msgToken"),
            "selector": Selector(selector, chosen, limits=limits) if selector and chosen else selector,
        }

    def body(self) -> dict[str, Any]:
        """Return the conditions as members of a request's body, or as parameters of a URL."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def _octets(text: str | None, place: str, reason: int) -> bytes | None:
    if text == "":  # as of a shell's variable that is not set: 24 zeros would mean all messages without an id
        raise RestError(place, "an id must not be empty", reason)
    return None if text is None else id_of_any_text(text, place, reason)
