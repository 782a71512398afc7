"""Items of a message list in JSON: messages without their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selectroute.queues.errors import MQRC_CORREL_ID_ERROR, MQRC_GROUP_ID_ERROR
from selectroute.queues.message.message import NO_ID, UNLIMITED, Descriptor, QueuedMessage
from selectroute.queues.rest.ids import id_of_text, message_id_of, token_of_text
from selectroute.selector.fields import id_to_text
from selectroute.selector.message import from_wire, to_wire


def item_of(message: QueuedMessage) -> dict[str, Any]:
    """Return a message as plain data, without its body."""
    descriptor = message.descriptor
    return {
        "messageId": id_to_text(descriptor.msg_id),
        "correlationId": None if descriptor.correl_id == NO_ID else id_to_text(descriptor.correl_id),
        "groupId": None if descriptor.group_id == NO_ID else id_to_text(descriptor.group_id),
        "msgSeqNumber": descriptor.msg_seq_number,
        "offset": descriptor.offset,
        "lastInGroup": descriptor.last_in_group,
        "priority": descriptor.priority,
        "persistence": "persistent" if descriptor.persistence else "nonPersistent",
        "expiry": "unlimited" if descriptor.expiry == UNLIMITED else 100 * descriptor.expiry,
        "timestamp": descriptor.timestamp,
        "backoutCount": descriptor.backout_count,
        "expiration": descriptor.expiration,
        "msgToken": descriptor.msg_token.hex().upper(),
        "properties": {name: to_wire(value) for name, value in message.properties.items()},
    }


def hex_item_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item as versions 1 and 2 of the API have it: ids are 48 digits without ``ID:``."""
    ids = ("messageId", "correlationId", "groupId")
    return {**item, **{name: item[name] and item[name].removeprefix("ID:").lower() for name in ids}}


def message_of_item(item: Mapping[str, Any]) -> QueuedMessage:
    """Return the message of an item, with an empty body.

    Raises RestError, MessageError, or KeyError, TypeError and ValueError for invalid items.
    """
    correl_id, group_id, expiry = item["correlationId"], item["groupId"], item["expiry"]
    descriptor = Descriptor(
        message_id_of(item["messageId"], "messageId"),
        NO_ID if correl_id is None else id_of_text(correl_id, "correlationId", MQRC_CORREL_ID_ERROR),
        NO_ID if group_id is None else id_of_text(group_id, "groupId", MQRC_GROUP_ID_ERROR),
        int(item["msgSeqNumber"]),
        int(item["offset"]),
        bool(item["lastInGroup"]),
        int(item["priority"]),
        item["persistence"] == "persistent",
        UNLIMITED if expiry == "unlimited" else int(expiry) // 100,
        int(item["timestamp"]),
        int(item["backoutCount"]),
        int(item["expiration"]),
        token_of_text(item["msgToken"], "msgToken"),
    )
    properties = {name: from_wire(name, value) for name, value in dict(item["properties"]).items()}
    return QueuedMessage(
        descriptor, b"", {name: value for name, value in properties.items() if value is not None}
    )
