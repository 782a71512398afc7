"""Kafka records as messages, one at a time: the reference for the meaning of a binding.

`record_of` is the inverse without a binding.

`spark/sources/kafka/convert.py` does the same column by column, for the identifiers that selectors read, and
is tested against this module. Queues, which take whole messages one by one, use this module itself.

A delivery over Kafka carries headers in addition to those of its message. Consumers may read
``selectroute-subscription``, ``selectroute-delivery-id`` (source / partition / offset / subscription, the
same in every attempt), ``selectroute-revision`` and ``selectroute-batch``: job / batch / task / number. A
job's batches count from 0, its side batches from -1 downwards, and the deliveries of each task of a batch
from 0. A record whose topic would refuse the time stamp of its source has that of sending, and
``selectroute-source-timestamp``, in milliseconds.

A record may also stand for all deliveries of a message to its topic: then ``selectroute-subscription`` lists
the subscriptions, separated by commas, ``selectroute-subscription-count`` is their number, and the delivery
id ends with ``*`` instead of a subscription.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from selectroute.kafka.binding import ID, BoundProperty, KafkaBinding
from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.bodies import Bodies
from selectroute.kafka.schemas.framing import HEADER
from selectroute.kafka.schemas.registry import Schemas
from selectroute.kafka.texts import NOT_UTF_8, TextError, value_of, value_of_json
from selectroute.selector.fields import id_to_text
from selectroute.selector.message import HEADER_TYPES, MAX_PROPERTIES, Message, MessageError, longest_name
from selectroute.selector.values import Double, Float, Int, Long, Number, Value
from selectroute.topics.filter import TOPIC


class Range(NamedTuple):
    """Records of one partition: from the offset ``start`` to the one before ``end``.

    An offset says which record it is only together with the id of its topic, and an epoch that the leader had
    when the partition went as far (KIP-516, KIP-320): a topic that was created again under its name, or lost
    its newest records, has other records at the same offsets. Its records are of another *history*, counted
    from 1.

    ``id`` is the topic's and ``epoch`` the leader's when the range was planned, empty and -1 if they are not
    known. ``skipped`` is the number of offsets before the range that were gone when the partition was first
    met.
    """

    topic: str
    partition: int
    start: int
    end: int
    id: str = ""
    epoch: int = -1
    history: int = 1
    skipped: int = 0

    @property
    def source(self) -> str:
        """Name of the topic in the output, which is another one for each history."""
        return source_of(self.topic, self.history)

    def __str__(self) -> str:
        return f"{self.source}/{self.partition} offsets {self.start} to {self.end - 1}"


def source_of(topic: str, history: int) -> str:
    """Return the name of a topic's history in the output: ``cars``, ``cars@2``. No topic has an @ in it."""
    return topic if history == 1 else f"{topic}@{history}"


class PartitionRecords(NamedTuple):
    """Records of one partition, in the columns of `selectroute.kafka.batches.decode.COLUMNS`."""

    topic: str
    partition: int
    records: pa.RecordBatch


SUBSCRIPTION: Final = "selectroute-subscription"
DELIVERY_ID: Final = "selectroute-delivery-id"
REVISION: Final = "selectroute-revision"
COUNT: Final = "selectroute-subscription-count"
BATCH: Final = "selectroute-batch"
SOURCE_TIMESTAMP: Final = "selectroute-source-timestamp"


def delivery_id(source: str, partition: int, offset: int, subscription: str) -> str:
    """Return the id of a delivery, from its message and subscription, independent of attempt and revision."""
    return f"{source}/{partition}/{offset}/{subscription}"


Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """Record as stored in Kafka; the timestamp is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()

    @property
    def size(self) -> int:
        """Bytes of key, value and headers, including the headers' names."""
        headers = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def message_of(
    record: Record,
    binding: KafkaBinding,
    reads: Collection[str] | None = None,
    schemas: Schemas | None = None,
) -> Message:
    """Convert a record to a message.

    Args:
        record: the record. Of headers with the same name the last one counts, as in Kafka's ``lastHeader``.
        binding: types and sources of properties.
        reads: the identifiers to convert to their bound types. All others stay text, or bytes if not UTF-8.
            None: convert all that are bound; only unbound headers may be any bytes.
        schemas: the schemas of bodies. None: bodies are JSON.

    A value that is not of its type, not UTF-8, or in a body that is not valid, is of an unlike type to the
    selectors that read it (``unlike`` of `Message`) and does not affect others; a property keeps its text, or
    bytes. A topic string that is not UTF-8 is NULL.

    Raises:
        RecordError: the record has more headers, or properties, than a message may have; or the schema of
            its body is not available, and such records are dead letters.
        SchemaUnavailableError: the schema is not available, and the registry's policy is to wait.
    """
    if len(record.headers) > MAX_PROPERTIES:
        raise too_many_headers()
    headers = dict(record.headers)
    name_length = longest_name(reads or ())
    sources = _Sources(record, headers, binding, reads, schemas)
    sources.check_schema()
    values: dict[str, Value | None] = {}
    unlike: set[str] = set()

    def take(name: str, value: Callable[[], Value | None], text: bytes | None) -> None:
        try:
            values[name] = value()
        except RecordError:
            unlike.add(name)
            if name not in HEADER_TYPES and text is not None:
                values[name] = _as_it_is(text)

    for name, value in headers.items():
        named = name and len(name) <= name_length
        if named and binding.is_property(name) and name not in binding.bound:
            take(name, partial(_unbound, name, value, binding.field(name), reads), value)
    for name, bound in binding.bound.items():
        if name not in (TOPIC, ID):
            take(name, partial(sources.value, name, bound, reads), sources.text(bound))
    topic = binding.bound.get(TOPIC)
    topic_string: Any = binding.topic(record.topic)
    if topic is not None and topic.source.kind != "topic":
        try:
            topic_string = sources.value(TOPIC, topic, reads)
        except RecordError:
            topic_string = None
    try:
        return Message(
            {name: value for name, value in values.items() if name in HEADER_TYPES},
            {name: value for name, value in values.items() if name not in HEADER_TYPES},
            topic_string,
            record.value,
            name_length=max(name_length, *map(len, binding.bound), 0),
            unlike=unlike,
        )
    except MessageError as error:
        raise RecordError("judge", "not-a-message", str(error)) from None


def message_id(record: Record, binding: KafkaBinding, schemas: Schemas | None = None) -> str | None:
    """Return the id that deliveries of this record carry: `ID` if it is bound, else JMSMessageID.

    None if the record has none or an invalid one.
    """
    name = _id_of(binding)
    if name not in binding.bound and not binding.is_property(name):
        return None
    try:
        sources = _Sources(record, dict(record.headers), binding, (name,), schemas)
        value = sources.value(name, binding.field(name), (name,))
    except RecordError:
        return None
    return value if isinstance(value, str) else None


def _id_of(binding: KafkaBinding) -> str:
    return ID if ID in binding.bound else "JMSMessageID"


class _Sources:
    """Values of one record by their sources; the body is read, at all paths, when its first field is."""

    def __init__(
        self,
        record: Record,
        headers: dict[str, bytes | None],
        binding: KafkaBinding,
        reads: Collection[str] | None,
        schemas: Schemas | None,
    ) -> None:
        own_id = _id_of(binding)
        self._in_body = [
            name
            for name, bound in binding.bound.items()
            if bound.source.kind == "body" and (reads is None or name in reads or name == own_id)
        ]
        self._record = record
        self._headers = headers
        self._bodies = Bodies([binding.bound[name].source.path for name in self._in_body], schemas)
        self._body: dict[str, Any] | None = None

    def check_schema(self) -> None:
        """Raise RecordError or SchemaUnavailableError if the schema of the body is not available."""
        if self._in_body:
            missing = self._bodies.missing([self._record.value], [self._headers.get(HEADER)])
            if missing:
                raise missing[0]

    def value(self, name: str, bound: BoundProperty, reads: Collection[str] | None) -> Value | None:
        source, record = bound.source, self._record
        wanted = reads is None or name in reads
        if source.kind == "body":
            return self._of_body(name, bound) if wanted else None
        if source.kind in ("header", "key"):
            text = record.key if source.kind == "key" else self._headers.get(source.name)
            if text is None or not wanted:
                return None if text is None or name in HEADER_TYPES else _as_it_is(text)
            return _strict(name, bound, text)
        if source.kind == "timestamp":
            return None if record.timestamp is None else Long(record.timestamp)
        if source.kind == "topic":
            return record.topic
        return Int(record.partition) if source.kind == "partition" else Long(record.offset)

    def text(self, bound: BoundProperty) -> bytes | None:
        """Return the bytes of a header or of the key, None for any other source."""
        kind = bound.source.kind
        if kind == "key":
            return self._record.key
        return self._headers.get(bound.source.name) if kind == "header" else None

    def _of_body(self, name: str, bound: BoundProperty) -> Value | None:
        if self._body is None:  # a body that is not valid is read again for each of its fields
            values = self._bodies.values(self._record.value, self._headers.get(HEADER))
            self._body = dict(zip(self._in_body, values, strict=True))
        return _converted(name, bound, partial(value_of_json, self._body[name]))


def _unbound(
    name: str, text: bytes | None, bound: BoundProperty, reads: Collection[str] | None
) -> Value | None:
    if text is None:
        return None
    if name in HEADER_TYPES:
        return _strict(name, bound, text) if reads is None or name in reads else None
    return _strict(name, bound, text) if reads is not None and name in reads else _as_it_is(text)


def _strict(name: str, bound: BoundProperty, text: bytes) -> Value | None:
    return _converted(name, bound, partial(value_of, text))


def _converted(name: str, bound: BoundProperty, convert: Callable[[str, str], Value | None]) -> Value | None:
    try:
        return _as_header(name, convert(bound.type, name))
    except TextError as error:
        stage = "read" if error.reason == NOT_UTF_8 else "judge"
        raise RecordError(stage, error.reason, f"{name!r} ({bound.source}): {error}") from None


def _as_header(name: str, value: Value | None) -> Value | None:
    """Convert an id of 24 bytes to the text that a message has."""
    return id_to_text(value) if isinstance(value, bytes) and name in HEADER_TYPES else value


def _as_it_is(text: bytes) -> Value:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return text


def too_many_headers() -> RecordError:
    """Return the error of a record with more headers than a message may have properties."""
    return RecordError("read", "too-many-headers", f"more than {MAX_PROPERTIES:,} headers")


def too_large(size: int, most: int) -> RecordError:
    """Return the error of a record that is larger than the limit."""
    return RecordError(
        "read", "too-large", f"key, value and headers have {size:,} bytes; the limit is {most:,}"
    )


class Produced(NamedTuple):
    """Record of a message: no key, the body as value, and a header for each JMS header and property.

    A record header has no type: numbers are decimal, booleans ``true`` and ``false``, byte strings their
    bytes. A reader of the record gives the types in a binding (``weight:int``).
    """

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def record_of(message: Message) -> Produced:
    """Return the record of a message. A text body is encoded as UTF-8."""
    headers = [
        (name, text_of(value))
        for part in (message.headers, message.properties)
        for name, value in part.items()
        if value is not None
    ]
    body = message.body
    return Produced(None, body.encode("utf-8") if isinstance(body, str) else body, headers)


def text_of(value: Value) -> bytes:
    """Return a value as the bytes of a header.

    >>> text_of(True), text_of(Double(0.1))
    (b'true', b'0.1')
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, Float | Double):
        number = value.value
        if math.isnan(number):
            return b"NaN"
        if math.isinf(number):
            return b"Infinity" if number > 0 else b"-Infinity"
        return repr(number).encode()
    if isinstance(value, Number):
        return str(value.value).encode()
    return str(value).encode("utf-8")
