"""Validation of a put, before the queue takes the message, and checks of fields that gets have too."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from selectroute.queues.errors import (
    MQRC_BUFFER_ERROR,
    MQRC_CORREL_ID_ERROR,
    MQRC_EXPIRY_ERROR,
    MQRC_GROUP_ID_ERROR,
    MQRC_MSG_FLAGS_ERROR,
    MQRC_MSG_ID_ERROR,
    MQRC_MSG_SEQ_NUMBER_ERROR,
    MQRC_MSG_TOO_BIG_FOR_Q,
    MQRC_OFFSET_ERROR,
    MQRC_PERSISTENCE_ERROR,
    MQRC_PRIORITY_ERROR,
    MQRC_PROPERTIES_TOO_BIG,
    MQRC_PROPERTY_NAME_ERROR,
    MQRC_PROPERTY_TYPE_ERROR,
    failed,
)
from selectroute.queues.message.message import CORRELATION, FIELDS, GROUP, OWN_PROPERTIES, SEQUENCE, UNLIMITED
from selectroute.queues.settings import QueueSettings
from selectroute.selector.fields import ID_BYTES, NO_ID, id_from_any_text
from selectroute.selector.message import (
    HEADER_TYPES,
    MAX_NAME_LENGTH,
    MAX_PROPERTIES,
    MessageError,
    checked_headers,
    checked_properties,
)
from selectroute.selector.syntax.source import SURROGATE
from selectroute.selector.values import Byte, Int, Long, Short, Value

MAX_NUMBER: Final = 999_999_999
"""Largest MsgSeqNumber, Offset and Expiry of a put."""

MAX_EXPIRY: Final = (1 << 31) - 1
"""Largest Expiry that an MQMD can say, an MQLONG."""


def id_of(octets: bytes, reason: int) -> bytes | None:
    """Return an id of 24 bytes, None for 24 zero bytes. Raises MQError with the reason for anything else."""
    if type(octets) is not bytes:
        octets = bytes_of(octets, reason)
    if len(octets) != ID_BYTES:
        raise failed(reason, f"an id must be {ID_BYTES} bytes, not {len(octets)}")
    return None if octets == NO_ID else octets


def bytes_of(octets: object, reason: int) -> bytes:
    """Return a copy of bytes, so that a later change of a bytearray does not reach the queue."""
    if not isinstance(octets, bytes | bytearray | memoryview):
        raise failed(reason, f"expected bytes, not a {type(octets).__name__}")
    return bytes(octets)


def sequence_of(number: int) -> int:
    """Return a MsgSeqNumber. Raises MQError 2250."""
    return number_of(number, 1, MQRC_MSG_SEQ_NUMBER_ERROR)


def offset_of(number: int) -> int:
    """Return an Offset. Raises MQError 2251."""
    return number_of(number, 0, MQRC_OFFSET_ERROR)


def number_of(number: object, least: int, reason: int, most: int = MAX_NUMBER) -> int:
    """Return an integer within bounds. Raises MQError with the reason."""
    if type(number) is not int:
        # An int of a subclass is accepted, a bool is not.
        if not isinstance(number, int) or isinstance(number, bool):
            raise failed(reason, f"expected an integer, not a {type(number).__name__}")
        number = int(number)
    if not least <= number <= most:
        raise failed(reason, f"must be {least:,} to {most:,}")
    return number


class ValidatedPut(NamedTuple):
    """Message that passed validation. ``msg_id`` is None if the queue generates one."""

    body: bytes
    msg_id: bytes | None
    correl_id: bytes
    group_id: bytes
    msg_seq_number: int
    offset: int
    last_in_group: bool
    priority: int
    persistence: bool
    expiry: int
    properties: Mapping[str, Value] | None
    """None for none."""

    timestamp: int | None = None
    """JMSTimestamp, in milliseconds since 1970; None for the time of the put."""

    expiration: int | None = None
    """JMSExpiration, in milliseconds since 1970, 0 for never; None for that of `expiry`."""

    is_amqp: bool = False
    """True if `body` is a message of AMQP, from its annotations on."""


MOST_PROPERTIES: Final = MAX_PROPERTIES - len(OWN_PROPERTIES)
"""Properties, with headers, that an application may set: selectors see no more than `MAX_PROPERTIES`."""

_made = tuple.__new__  # a NamedTuple's own constructor takes twice as long

_SYNONYMS: Final = {"jms.Cid": CORRELATION, "jms.Gid": GROUP, "jms.Seq": SEQUENCE}
"""Synonyms of headers that an application may set, with the names under which they are stored."""


def validate_put(
    settings: QueueSettings,
    body: bytes,
    msg_id: bytes | None = None,
    correl_id: bytes = NO_ID,
    group_id: bytes = NO_ID,
    msg_seq_number: int = 1,
    offset: int = 0,
    last_in_group: bool = False,
    priority: int | None = None,
    persistence: bool | None = None,
    expiry: int = UNLIMITED,
    properties: Mapping[str, object] | None = None,
) -> ValidatedPut:
    """Check a put and add the queue's defaults. Raises MQError as `Queue.put` does."""
    if type(body) is not bytes:
        body = bytes_of(body, MQRC_BUFFER_ERROR)
    if len(body) > settings.max_message_length:
        raise failed(
            MQRC_MSG_TOO_BIG_FOR_Q,
            f"the body has {len(body):,} bytes, at most {settings.max_message_length:,}",
        )
    made_id = None if msg_id is None else id_of(msg_id, MQRC_MSG_ID_ERROR)
    own_correl_id = NO_ID if correl_id is NO_ID else id_of(correl_id, MQRC_CORREL_ID_ERROR) or NO_ID
    own_group_id = NO_ID if group_id is NO_ID else id_of(group_id, MQRC_GROUP_ID_ERROR) or NO_ID
    if type(last_in_group) is not bool:
        raise failed(MQRC_MSG_FLAGS_ERROR, "last_in_group must be True or False")
    if priority is None:
        priority = settings.default_priority
    else:
        priority = number_of(priority, 0, MQRC_PRIORITY_ERROR, 9)
    if persistence is None:
        persistence = settings.default_persistence
    elif type(persistence) is not bool:
        raise failed(MQRC_PERSISTENCE_ERROR, "persistence must be True or False")
    if expiry != UNLIMITED or type(expiry) is not int:
        expiry = number_of(expiry, 1, MQRC_EXPIRY_ERROR)
    if msg_seq_number != 1 or type(msg_seq_number) is not int:
        msg_seq_number = sequence_of(msg_seq_number)
    if offset != 0 or type(offset) is not int:
        offset = offset_of(offset)
    own_properties: Mapping[str, Value] | None = None
    if properties is not None:
        stored = _checked(properties)
        if stored:
            own_correl_id = _own_id(stored, CORRELATION, own_correl_id, MQRC_CORREL_ID_ERROR)
            own_group_id = _own_id(stored, GROUP, own_group_id, MQRC_GROUP_ID_ERROR)
            msg_seq_number = _own_sequence(stored, msg_seq_number)
            own_properties = MappingProxyType(stored)
    return _made(
        ValidatedPut,
        (
            body,
            made_id,
            own_correl_id,
            own_group_id,
            msg_seq_number,
            offset,
            last_in_group,
            priority,
            persistence,
            expiry,
            own_properties,
            None,
            None,
            False,
        ),
    )


def _checked(properties: Mapping[str, object]) -> dict[str, Value]:
    """Check the properties of a message, including headers; return them without NULL ones."""
    if not isinstance(properties, Mapping):
        raise failed(
            MQRC_PROPERTY_TYPE_ERROR, f"properties must be a mapping, not a {type(properties).__name__}"
        )
    if len(properties) > MOST_PROPERTIES:
        raise failed(MQRC_PROPERTIES_TOO_BIG, f"a message has at most {MOST_PROPERTIES:,} properties")
    headers: dict[str, object] = {}
    others: dict[str, object] = {}
    for name, thing in properties.items():
        if not isinstance(name, str):
            raise failed(MQRC_PROPERTY_NAME_ERROR, f"a name must be a text, not a {type(name).__name__}")
        if not 0 < len(name) <= MAX_NAME_LENGTH or (not name.isascii() and SURROGATE.search(name)):
            raise failed(MQRC_PROPERTY_NAME_ERROR, f"a name has 1 to {MAX_NAME_LENGTH:,} whole characters")
        if name in FIELDS:
            raise failed(MQRC_PROPERTY_NAME_ERROR, f"{name} is a field of the descriptor")
        name = _SYNONYMS.get(name, name)
        (headers if name in HEADER_TYPES else others)[name] = thing
    try:
        values = (checked_headers(headers) if headers else {}) | checked_properties(others)
    except MessageError as error:
        raise failed(MQRC_PROPERTY_TYPE_ERROR, str(error)) from error
    for name in (CORRELATION, GROUP):
        if not isinstance(values.get(name), str | None):
            raise failed(MQRC_PROPERTY_TYPE_ERROR, f"{name} must be a string")
    return {name: value for name, value in values.items() if value is not None}


def _own_id(properties: dict[str, Value], name: str, argument: bytes, reason: int) -> bytes:
    """Return the 24 bytes of an id, which may also be given as text among the properties."""
    octets = id_from_any_text(properties.get(name))
    if octets is None:
        return argument
    if argument is not NO_ID and argument != octets:
        raise failed(reason, f"{name} is the text of another id")
    return NO_ID if octets == NO_ID else octets


def _own_sequence(properties: dict[str, Value], argument: int) -> int:
    """Return the MsgSeqNumber, which may also be given as JMSXGroupSeq; that property is removed."""
    value = properties.pop(SEQUENCE, None)
    if value is None:
        return argument
    number = value.value if isinstance(value, Byte | Short | Int | Long) else None
    if number is None or argument not in (1, number):
        raise failed(MQRC_MSG_SEQ_NUMBER_ERROR, f"{SEQUENCE} must equal the MsgSeqNumber")
    return sequence_of(number)
