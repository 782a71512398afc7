"""Messages without their bodies as JSON: the fields of a descriptor by their names in the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from selectroute.queues.errors import MQRC_CORREL_ID_ERROR, MQRC_GROUP_ID_ERROR, MQRC_MSG_ID_ERROR
from selectroute.queues.message.message import UNLIMITED, Descriptor, QueuedMessage
from selectroute.queues.message.put_validation import id_of
from selectroute.queues.rest.lookup import id_of_any_text, message_id_of, token_of_text
from selectroute.selector.fields import NO_ID, id_to_text
from selectroute.selector.message import from_wire, to_wire


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
