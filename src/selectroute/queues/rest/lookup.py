"""Parameters that select a message: those of IBM MQ's messaging REST API, version 3, and additional ones.

An id is a text: ``ID:`` and hex digits, or an application's text. A list has messages without their bodies:
the fields of a descriptor by their names in the API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from selectroute.queues.errors import (
    MQRC_CORREL_ID_ERROR,
    MQRC_GROUP_ID_ERROR,
    MQRC_MSG_ID_ERROR,
    MQRC_MSG_TOKEN_ERROR,
)
from selectroute.queues.lookup import MatchOptions, match_of
from selectroute.queues.message.message import TOKEN_BYTES, UNLIMITED, Descriptor, QueuedMessage
from selectroute.queues.message.put_validation import id_of
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import ID_BYTES, NO_ID, id_to_text, octets_of_text
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.message import from_wire, to_wire
from selectroute.selector.selector import Selector

_HEX: Final = re.compile("(?:[0-9A-Fa-f]{2}){1,24}")


class RestError(SelectRouteError):
    """Invalid header or parameter: `place` is its name, `reason` IBM's reason code if there is one."""

    def __init__(self, place: str, sentence: str, reason: int | None = None) -> None:
        super().__init__(f"{place}: {sentence}")
        self.place = place
        self.sentence = sentence
        self.reason = reason


def id_of_text(text: str, place: str, reason: int) -> bytes:
    """Return the 24 bytes of ``ID:`` and up to 48 hexadecimal digits, padded with zeros on the right.

    48 digits without ``ID:`` are also accepted. Raises RestError at `place`.
    """
    digits = text.removeprefix("ID:")
    if not _HEX.fullmatch(digits) or (digits == text and len(digits) < 2 * ID_BYTES):
        raise RestError(place, "an id must be ID: and up to 48 hexadecimal digits, two for each byte", reason)
    return bytes.fromhex(digits).ljust(ID_BYTES, b"\0")


def message_id_of(text: str, place: str) -> bytes:
    """Return the 24 bytes of a message id, given with all 48 digits. Raises RestError."""
    if len(text.removeprefix("ID:")) != 2 * ID_BYTES:
        raise RestError(place, "a message id must be ID: and 48 hexadecimal digits", MQRC_MSG_ID_ERROR)
    return id_of_text(text, place, MQRC_MSG_ID_ERROR)


def is_id(text: str) -> bool:
    """Return whether a text is an id in digits; any other is an application's and means its UTF-8."""
    return text.startswith("ID:") or bool(len(text) == 2 * ID_BYTES and _HEX.fullmatch(text))


def token_of_text(text: str, place: str) -> bytes:
    """Return the 16 bytes of a message token. Raises RestError."""
    if len(text) != 2 * TOKEN_BYTES or not _HEX.fullmatch(text):
        raise RestError(place, "a message token must be 32 hexadecimal digits", MQRC_MSG_TOKEN_ERROR)
    return bytes.fromhex(text)


def id_of_any_text(text: str, place: str, reason: int) -> bytes:
    """Return the 24 bytes of a correlation or group id: of its digits, or of an application's text.

    Raises RestError at `place` for ``ID:`` without digits.
    """
    return id_of_text(text, place, reason) if is_id(text) else octets_of_text(text)


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


class DescriptorField(NamedTuple):
    """Field of a descriptor in the API: its name, what JSON has for a value, and the value of that.

    A header has the same as text, so `read` takes both.
    """

    name: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _id(name: str, reason: int) -> DescriptorField:
    """Return the field of an id that may be missing: None for 24 zero bytes."""
    return DescriptorField(
        name,
        lambda octets: id_to_text(id_of(octets, reason)),
        lambda text: NO_ID if text is None else id_of_any_text(text, name, reason),
    )


FIELDS: Final[Mapping[str, DescriptorField]] = {
    "msg_id": DescriptorField(
        "messageId",
        lambda octets: id_to_text(id_of(octets, MQRC_MSG_ID_ERROR) or NO_ID),
        lambda text: message_id_of(text, "messageId"),
    ),
    "correl_id": _id("correlationId", MQRC_CORREL_ID_ERROR),
    "group_id": _id("groupId", MQRC_GROUP_ID_ERROR),
    "msg_seq_number": DescriptorField("msgSeqNumber", int, int),
    "offset": DescriptorField("offset", int, int),
    "last_in_group": DescriptorField("lastInGroup", bool, lambda value: value in (True, "true")),
    "priority": DescriptorField("priority", int, int),
    "persistence": DescriptorField(
        "persistence",
        lambda is_persistent: "persistent" if is_persistent else "nonPersistent",
        "persistent".__eq__,
    ),
    "expiry": DescriptorField(
        "expiry",
        lambda tenths: "unlimited" if tenths == UNLIMITED else 100 * tenths,
        lambda value: UNLIMITED if value == "unlimited" else int(value) // 100,
    ),
    "timestamp": DescriptorField("timestamp", int, int),
    "backout_count": DescriptorField("backoutCount", int, int),
    "expiration": DescriptorField("expiration", int, int),
    "msg_token": DescriptorField(
        "msgToken", lambda token: token.hex().upper(), lambda text: token_of_text(text, "msgToken")
    ),
}
"""Fields of a descriptor, in its order."""


def data_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a descriptor as plain data, by their names in the API; None for no id."""
    return {field.name: field.write(fields[name]) for name, field in FIELDS.items() if name in fields}


def descriptor_of(data: Mapping[str, Any]) -> Descriptor:
    """Return the descriptor of plain data, or of texts.

    Raises RestError, or KeyError, TypeError, AttributeError and ValueError.
    """
    return Descriptor(*(field.read(data[field.name]) for field in FIELDS.values()))


def item_of(message: QueuedMessage) -> dict[str, Any]:
    """Return a message as plain data, without its body."""
    properties = {name: to_wire(value) for name, value in message.properties.items()}
    return {**data_of(message.descriptor._asdict()), "properties": properties}


def hex_item_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item as versions 1 and 2 of the API have it: ids are 48 digits without ``ID:``."""
    ids = ("messageId", "correlationId", "groupId")
    return {**item, **{name: item[name] and item[name].removeprefix("ID:").lower() for name in ids}}


def message_of_item(item: Mapping[str, Any]) -> QueuedMessage:
    """Return the message of an item, with an empty body. Raises MessageError, or as `descriptor_of`."""
    properties = {name: from_wire(name, value) for name, value in dict(item["properties"]).items()}
    kept = {name: value for name, value in properties.items() if value is not None}
    return QueuedMessage(descriptor_of(item), b"", kept)
