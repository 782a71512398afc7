"""Composite types of AMQP 1.0: performatives, delivery states, termini and errors (parts 2, 3 and 5).

Each is a NamedTuple with the fields of the specification, in its order; None is null. The annotations of the
fields are their types in AMQP. `read` makes a composite from a decoded value and checks the types of its
fields, `write` encodes one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from selectroute.amqp.errors import DECODE_ERROR, AmqpError
from selectroute.amqp.types import (
    NULL,
    Described,
    Symbol,
    binary,
    boolean,
    described,
    encode,
    fields_of,
    map_of,
    string,
    symbol,
    symbols,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

MAX_UINT: Final = 0xFFFF_FFFF


class _Type(NamedTuple):
    """Type of a field: its encoding, and the classes that a decoded value may have."""

    encode: Callable[[Any], bytes]
    classes: tuple[type, ...] = ()


Boolean = Annotated[bool, _Type(boolean, (bool,))]
Ubyte = Annotated[int, _Type(ubyte, (int,))]
Ushort = Annotated[int, _Type(ushort, (int,))]
Uint = Annotated[int, _Type(uint, (int,))]
String = Annotated[str, _Type(string, (str,))]
Name = Annotated[str, _Type(symbol, (Symbol,))]
Names = Annotated[Any, _Type(symbols, (list, Symbol))]
"""Symbols: an array, or only one."""
Ulong = Annotated[int, _Type(ulong, (int,))]
Binary = Annotated[bytes, _Type(binary, (bytes,))]
Timestamp = Annotated[int, _Type(timestamp, (int,))]
MessageId = Annotated[int | UUID | bytes | str, _Type(encode, (int, UUID, bytes, str))]
Map = Annotated[dict[Any, Any], _Type(map_of, (dict,))]


class Open(NamedTuple):
    """Opening of a connection."""

    container_id: String
    hostname: String | None = None
    max_frame_size: Uint | None = None
    channel_max: Ushort | None = None
    idle_time_out: Uint | None = None
    outgoing_locales: Names | None = None
    incoming_locales: Names | None = None
    offered_capabilities: Names | None = None
    desired_capabilities: Names | None = None
    properties: Map | None = None


class Begin(NamedTuple):
    """Beginning of a session."""

    remote_channel: Ushort | None
    next_outgoing_id: Uint
    incoming_window: Uint
    outgoing_window: Uint
    handle_max: Uint | None = None
    offered_capabilities: Names | None = None
    desired_capabilities: Names | None = None
    properties: Map | None = None


class SourceTerminus(NamedTuple):
    """Terminus that messages come from."""

    address: String | None = None
    durable: Uint | None = None
    expiry_policy: Name | None = None
    timeout: Uint | None = None
    dynamic: Boolean | None = None
    dynamic_node_properties: Map | None = None
    distribution_mode: Name | None = None
    filter: Map | None = None
    default_outcome: Outcome | None = None
    outcomes: Names | None = None
    capabilities: Names | None = None


class TargetTerminus(NamedTuple):
    """Terminus that messages go to."""

    address: String | None = None
    durable: Uint | None = None
    expiry_policy: Name | None = None
    timeout: Uint | None = None
    dynamic: Boolean | None = None
    dynamic_node_properties: Map | None = None
    capabilities: Names | None = None


class Coordinator(NamedTuple):
    """TargetTerminus of a link that controls transactions."""

    capabilities: Names | None = None


class Attach(NamedTuple):
    """Attaching of a link."""

    name: String
    handle: Uint
    role: Boolean
    """True for the end that receives."""
    snd_settle_mode: Ubyte | None = None
    rcv_settle_mode: Ubyte | None = None
    source: SourceTerminus | None = None
    target: TargetTerminus | Coordinator | None = None
    unsettled: Map | None = None
    incomplete_unsettled: Boolean | None = None
    initial_delivery_count: Uint | None = None
    max_message_size: Ulong | None = None
    offered_capabilities: Names | None = None
    desired_capabilities: Names | None = None
    properties: Map | None = None


class Flow(NamedTuple):
    """State of a session's windows and of a link's credit."""

    next_incoming_id: Uint | None
    incoming_window: Uint
    next_outgoing_id: Uint
    outgoing_window: Uint
    handle: Uint | None = None
    delivery_count: Uint | None = None
    link_credit: Uint | None = None
    available: Uint | None = None
    drain: Boolean | None = None
    echo: Boolean | None = None
    properties: Map | None = None


class Transfer(NamedTuple):
    """Transfer of a message, or of a part."""

    handle: Uint
    delivery_id: Uint | None = None
    delivery_tag: Binary | None = None
    message_format: Uint | None = None
    settled: Boolean | None = None
    more: Boolean | None = None
    rcv_settle_mode: Ubyte | None = None
    state: State | None = None
    resume: Boolean | None = None
    aborted: Boolean | None = None
    batchable: Boolean | None = None


class Disposition(NamedTuple):
    """New state of the deliveries from first to last."""

    role: Boolean
    first: Uint
    last: Uint | None = None
    settled: Boolean | None = None
    state: State | None = None
    batchable: Boolean | None = None


class Detach(NamedTuple):
    """Detaching of a link."""

    handle: Uint
    closed: Boolean | None = None
    error: Error | None = None


class End(NamedTuple):
    """End of a session."""

    error: Error | None = None


class Close(NamedTuple):
    """Close of a connection."""

    error: Error | None = None


class MessageHeader(NamedTuple):
    """First section of a message: what it asks of whoever delivers it."""

    durable: Boolean | None = None
    priority: Ubyte | None = None
    ttl: Uint | None = None
    """Milliseconds to live."""
    first_acquirer: Boolean | None = None
    delivery_count: Uint | None = None
    """Number of earlier deliveries that failed."""


class Properties(NamedTuple):
    """Section of a message with fields that JMS calls headers; times are milliseconds since 1970."""

    message_id: MessageId | None = None
    user_id: Binary | None = None
    to: String | None = None
    subject: String | None = None
    reply_to: String | None = None
    correlation_id: MessageId | None = None
    content_type: Name | None = None
    content_encoding: Name | None = None
    absolute_expiry_time: Timestamp | None = None
    creation_time: Timestamp | None = None
    group_id: String | None = None
    group_sequence: Uint | None = None
    reply_to_group_id: String | None = None


class Error(NamedTuple):
    """Error of an end, with its condition."""

    condition: Name
    description: String | None = None
    info: Map | None = None


class Received(NamedTuple):
    """State of a delivery of which a part has arrived."""

    section_number: Uint
    section_offset: Ulong


class Accepted(NamedTuple):
    """Outcome: the receiver has taken the message."""


class Rejected(NamedTuple):
    """Outcome: the message is invalid, and cannot be processed."""

    error: Error | None = None


class Released(NamedTuple):
    """Outcome: the message was not, and will not be, processed."""


class Modified(NamedTuple):
    """Outcome: the message was not processed, and has changed."""

    delivery_failed: Boolean | None = None
    undeliverable_here: Boolean | None = None
    message_annotations: Map | None = None


class Declare(NamedTuple):
    """Command: begin a transaction."""

    global_id: Binary | None = None


class Discharge(NamedTuple):
    """Command: end a transaction, by a rollback if it is failed."""

    txn_id: Binary
    fail: Boolean | None = None


class Declared(NamedTuple):
    """Outcome of a `Declare`."""

    txn_id: Binary


class TransactionalState(NamedTuple):
    """State of a delivery that takes its outcome when a transaction is committed."""

    txn_id: Binary
    outcome: Outcome | None = None


class DeleteOnClose(NamedTuple):
    """Lifetime of a node: that of the link that made it."""


class SaslMechanisms(NamedTuple):
    """Mechanisms that a server offers."""

    mechanisms: Names


class SaslInit(NamedTuple):
    """Mechanism that a client picks, with its credentials."""

    mechanism: Name
    initial_response: Binary | None = None
    hostname: String | None = None


class SaslOutcome(NamedTuple):
    """Result of an authentication: 0 is success, 1 refused credentials, 3 a failure of the server."""

    code: Ubyte
    additional_data: Binary | None = None


Outcome = Accepted | Rejected | Released | Modified
State = Outcome | Received | Declared | TransactionalState

_COMPOSITES: Final[tuple[tuple[int, str, type], ...]] = (
    (0x10, "open", Open),
    (0x11, "begin", Begin),
    (0x12, "attach", Attach),
    (0x13, "flow", Flow),
    (0x14, "transfer", Transfer),
    (0x15, "disposition", Disposition),
    (0x16, "detach", Detach),
    (0x17, "end", End),
    (0x18, "close", Close),
    (0x1D, "error", Error),
    (0x23, "received", Received),
    (0x24, "accepted", Accepted),
    (0x25, "rejected", Rejected),
    (0x26, "released", Released),
    (0x27, "modified", Modified),
    (0x28, "source", SourceTerminus),
    (0x29, "target", TargetTerminus),
    (0x2B, "delete-on-close", DeleteOnClose),
    (0x30, "coordinator", Coordinator),
    (0x31, "declare", Declare),
    (0x32, "discharge", Discharge),
    (0x33, "declared", Declared),
    (0x34, "transactional-state", TransactionalState),
    (0x40, "sasl-mechanisms", SaslMechanisms),
    (0x41, "sasl-init", SaslInit),
    (0x44, "sasl-outcome", SaslOutcome),
    (0x70, "header", MessageHeader),
    (0x73, "properties", Properties),
)
"""Composite types: descriptor, name, class."""

_MOST_SHAPES: Final = 100


class _Field(NamedTuple):
    """Field of a composite type."""

    name: str
    encode: Callable[[Any], bytes]
    classes: tuple[type, ...]
    """Classes that its decoded value may have as it is: not those of composites."""
    composites: tuple[type, ...]
    """Composite types of its values, if they are composites."""


class _Composite(NamedTuple):
    """Composite type."""

    of: Any
    descriptor: int
    fields: tuple[_Field, ...]
    mandatory: int
    """Number of fields up to the last mandatory one."""
    shapes: set[tuple[type, ...]]
    """Classes of fields that were found right before: most frames of a kind are alike."""


def write(value: Any) -> bytes:
    """Encode a composite."""
    composite = _BY_CLASS[type(value)]
    encoded = [
        NULL if of is None else field.encode(of) for field, of in zip(composite.fields, value, strict=True)
    ]
    return described(composite.descriptor, fields_of(encoded))


def read(value: Any, expected: tuple[type, ...]) -> Any:
    """Return the composite of a decoded value, which is one of those expected. Raises AmqpError."""
    if type(value) is not Described:
        raise AmqpError(DECODE_ERROR, f"{_listed(expected)} expected")
    descriptor, fields = value
    composite = _BY_DESCRIPTOR.get(descriptor)
    if composite is None or composite.of not in expected:
        raise AmqpError(DECODE_ERROR, f"{_listed(expected)} expected, not {descriptor!r:.80}")
    if type(fields) is not list:
        raise AmqpError(DECODE_ERROR, f"{composite.of.__name__} is not a list")
    shape = tuple(map(type, fields))
    if shape not in composite.shapes:
        _check(composite, fields)
        if len(composite.shapes) < _MOST_SHAPES and Described not in shape:
            composite.shapes.add(shape)
    return composite.of(*fields)


def _check(composite: _Composite, fields: list[Any]) -> None:
    """Check the fields of a composite, and read those that are composites themselves. Raises AmqpError."""
    name, most = composite.of.__name__, len(composite.fields)
    if not composite.mandatory <= len(fields) <= most:
        raise AmqpError(DECODE_ERROR, f"{name} has {composite.mandatory} to {most} fields")
    for number, (field, value) in enumerate(zip(composite.fields, fields, strict=False)):
        if type(value) in field.classes:
            continue
        if not field.composites:
            what = "missing" if value is None else f"of the type {type(value).__name__}"
            raise AmqpError(DECODE_ERROR, f"{name}: {field.name} is {what}")
        fields[number] = read(value, field.composites)


def difference(number: int, other: int) -> int:
    """Return how far a serial number of 32 bits is ahead of another one; negative if behind (RFC 1982)."""
    return ((number - other + (1 << 31)) & MAX_UINT) - (1 << 31)


def names_in(value: Any) -> list[str]:
    """Return the symbols of a field that has several, or one."""
    values = value if isinstance(value, list) else [value]
    return [str(name) for name in values if isinstance(name, Symbol)]


def _listed(expected: tuple[type, ...]) -> str:
    return " or ".join(of.__name__ for of in expected)


def _composite(descriptor: int, of: Any) -> _Composite:
    """Return a composite type, as the annotations of its class say it."""
    fields, mandatory = [], 0
    for number, (name, hint) in enumerate(get_type_hints(of, include_extras=True).items(), 1):
        options = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)
        some = tuple(option for option in options if option is not NoneType)
        field_type: _Type = getattr(some[0], "__metadata__", (_Type(write),))[0]
        null = (NoneType,) if NoneType in options else ()
        composites = () if field_type.classes else some
        fields.append(_Field(name, field_type.encode, field_type.classes + null, composites))
        mandatory = mandatory if null else number
    return _Composite(of, descriptor, tuple(fields), mandatory, set())


_BY_CLASS: Final = {of: _composite(descriptor, of) for descriptor, _, of in _COMPOSITES}
_BY_DESCRIPTOR: Final[dict[int | str, _Composite]] = {
    key: _BY_CLASS[of] for descriptor, name, of in _COMPOSITES for key in (descriptor, f"amqp:{name}:list")
}
