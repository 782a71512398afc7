"""Kafka records as messages, one at a time: the reference for the meaning of a binding. `record_of` is the
inverse without a binding.

`spark/sources/kafka/reader.py` does the same column by column, for the identifiers that selectors read, and
is tested against this module. Queues, which take whole messages one by one, use this module itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from selectroute.kafka.binding import ID, Bound, KafkaBinding, Path
from selectroute.kafka.texts import NOT_UTF_8, TextError, value_of, value_of_json
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import id_to_text
from selectroute.selector.message import HEADER_TYPES, MAX_PROPERTIES, Message, MessageError, longest_name
from selectroute.selector.values.values import Double, Float, Int, Long, Number, Value
from selectroute.topics.levels import TOPIC

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


class RecordError(SelectRouteError):
    """Record that is not a valid message. Its dead letter has the same `stage` and `reason`."""

    def __init__(self, stage: str, reason: str, problem: str) -> None:
        super().__init__(stage, reason, problem)
        self.stage = stage
        self.reason = reason
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


def message_of(record: Record, binding: KafkaBinding, reads: Collection[str] | None = None) -> Message:
    """Convert a record to a message.

    Args:
        record: the record. Of headers with the same name the last one counts, as in Kafka's ``lastHeader``.
        binding: types and sources of properties.
        reads: the identifiers to convert to their bound types. All others stay text, or bytes if not UTF-8.
            None: convert all that are bound; only unbound headers may be any bytes.

    A value that is not of its type, not UTF-8, or in a body that is not JSON, is of an unlike type to the
    selectors that read it (``unlike`` of `Message`) and does not affect others; a property keeps its text, or
    bytes. A topic string that is not UTF-8 is NULL.

    Raises:
        RecordError: the record has more headers, or properties, than a message may have.
    """
    if len(record.headers) > MAX_PROPERTIES:
        raise too_many_headers(len(record.headers))
    headers = dict(record.headers)
    name_length = longest_name(reads or ())
    sources = _Sources(record, headers)
    found: dict[str, Value | None] = {}
    unlike: set[str] = set()

    def take(name: str, value: Callable[[], Value | None], text: bytes | None) -> None:
        try:
            found[name] = value()
        except RecordError:
            unlike.add(name)
            if name not in HEADER_TYPES and text is not None:
                found[name] = _as_it_is(text)

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
            {name: value for name, value in found.items() if name in HEADER_TYPES},
            {name: value for name, value in found.items() if name not in HEADER_TYPES},
            topic_string,
            record.value,
            name_length=max(name_length, *map(len, binding.bound), 0),
            unlike=unlike,
        )
    except MessageError as error:
        raise RecordError("judge", "not-a-message", str(error)) from None


def message_id(record: Record, binding: KafkaBinding) -> str | None:
    """Return the id that deliveries of this record carry: `ID` if it is bound, else JMSMessageID; None if the
    record has none or an invalid one."""
    name = ID if ID in binding.bound else "JMSMessageID"
    if name not in binding.bound and not binding.is_property(name):
        return None
    try:
        value = _Sources(record, dict(record.headers)).value(name, binding.field(name), (name,))
    except RecordError:
        return None
    return value if isinstance(value, str) else None


class _Sources:
    """Values of one record by their sources; the body is parsed when its first field is read."""

    def __init__(self, record: Record, headers: dict[str, bytes | None]) -> None:
        self._record = record
        self._headers = headers
        self._body: Any = None
        self._parsed = False

    def value(self, name: str, bound: Bound, reads: Collection[str] | None) -> Value | None:
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

    def text(self, bound: Bound) -> bytes | None:
        """Return the bytes of a header or of the key, None for any other source."""
        kind = bound.source.kind
        if kind == "key":
            return self._record.key
        return self._headers.get(bound.source.name) if kind == "header" else None

    def _of_body(self, name: str, bound: Bound) -> Value | None:
        if not self._parsed:  # a body that is not JSON is parsed again for each of its fields
            self._body = None if self._record.value is None else parsed(self._record.value)
            self._parsed = True
        plain = at_path(self._body, bound.source.path)
        return _converted(name, bound, partial(value_of_json, plain))


def _unbound(name: str, text: bytes | None, bound: Bound, reads: Collection[str] | None) -> Value | None:
    if text is None:
        return None
    if name in HEADER_TYPES:
        return _strict(name, bound, text) if reads is None or name in reads else None
    return _strict(name, bound, text) if reads is not None and name in reads else _as_it_is(text)


def _strict(name: str, bound: Bound, text: bytes) -> Value | None:
    return _converted(name, bound, partial(value_of, text))


def _converted(name: str, bound: Bound, convert: Callable[[str, str], Value | None]) -> Value | None:
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


def too_many_headers(count: int) -> RecordError:
    """Return the error of a record with more headers than a message may have properties."""
    return RecordError("read", "too-many-headers", f"{count:,} headers; the limit is {MAX_PROPERTIES:,}")


def too_large(size: int, most: int) -> RecordError:
    """Return the error of a record that is larger than the limit."""
    return RecordError(
        "read", "too-large", f"key, value and headers have {size:,} bytes; the limit is {most:,}"
    )


def no_constant(name: str) -> NoReturn:
    """Reject NaN and Infinity, which Python reads as JSON."""
    raise ValueError(f"{name} is not valid JSON")


# `scan_once`, not `decode`: that skips white space with regular expressions, which doubles the time.
_DECODER: Final = json.JSONDecoder(parse_constant=no_constant)
_SCAN: Final[Callable[[str, int], tuple[Any, int]]] = _DECODER.scan_once  # type: ignore[attr-defined]
_WHITE_SPACE: Final = " \t\n\r"


def parsed(value: bytes) -> Any:
    """Return a record's value as parsed JSON. Raises RecordError."""
    try:
        text = value.decode("utf-8").strip(_WHITE_SPACE)
        body, end = _SCAN(text, 0)
        if end != len(text):
            raise ValueError(f"extra data after its end at character {end}")
        return body
    except UnicodeDecodeError as error:
        raise RecordError("read", NOT_UTF_8, f"byte {error.start} of the body is not UTF-8") from None
    except RecursionError:
        raise RecordError("parse", "too-deep", "the body is nested too deeply") from None
    except StopIteration as stopped:
        problem = f"no value at character {stopped.value}"
        raise RecordError("parse", "not-json", f"the body is not JSON: {problem}") from None
    except ValueError as error:
        raise RecordError("parse", "not-json", f"the body is not JSON: {error}") from None


def at_path(body: Any, path: Path) -> Any:
    """Return the value at a path of parsed JSON, None if there is none."""
    for step in path:
        if isinstance(step, int):
            body = body[step] if isinstance(body, list) and step < len(body) else None
        else:
            body = body.get(step) if isinstance(body, dict) else None
        if body is None:
            return None
    return body


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
