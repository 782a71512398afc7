"""Fields of a message that have several names, each with a type of its own (seed 003, "Synonym for").

``JMSPriority``, ``jms.Pri`` and ``Root.MQMD.Priority`` are one field; ``JMSMessageID`` is a string and
``Root.MQMD.MsgId`` the same id as 24 bytes. A message carries a field under any of its names. Reading it by
one name gives the value under that name, or else the value under the first other name that the message has,
converted.

A *derived field* is such a name as an attribute of the index, prefixed with ``@``, which no selector can
spell. ``Dialect.fields`` lists a dialect's derived fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from selectroute.selector.values import Byte, Int, Long, Short, Value

PREFIX: Final = "@"
"""Prefix of a derived field, before the name that selectors use."""

ID_BYTES: Final = 24
"""Bytes of a MsgId, CorrelId or GroupId."""

NO_ID: Final = bytes(ID_BYTES)
"""MQMI_NONE and MQCI_NONE: to match this id is to match any."""

_NO_ID_TEXT: Final = f"ID:{NO_ID.hex()}"

Convert = Callable[..., Value | None]
"""Function from the values of some other names to this name's value; None if they do not convert."""


@dataclass(frozen=True, slots=True)
class FieldSource:
    """Other names of a field that together give its value."""

    names: tuple[str, ...]
    convert: Convert


def id_to_text(value: Value | None) -> str | None:
    """Return 24 bytes as ``ID:`` and 48 hexadecimal digits, in capitals as IBM MQ writes them."""
    return f"ID:{value.hex().upper()}" if isinstance(value, bytes) and len(value) == ID_BYTES else None


def id_from_text(value: Value | None) -> bytes | None:
    """Return the 24 bytes of ``ID:`` and 48 hexadecimal digits in either case; None of anything else."""
    digits = _ID.fullmatch(value) if isinstance(value, str) else None
    return bytes.fromhex(digits[1]) if digits else None


def octets_of_text(text: str) -> bytes:
    """Return 24 bytes: those of ``ID:`` and 48 digits, or the text's own in UTF-8, padded with zeros or cut.

    IBM MQ cuts JMSXGroupID so, wherever a character ends.
    """
    return id_from_text(text) or text.encode("utf-8", "surrogatepass")[:ID_BYTES].ljust(ID_BYTES, b"\0")


def id_from_any_text(value: Value | None) -> bytes | None:
    """Return the 24 bytes of a text, see `octets_of_text`; None of anything else."""
    return octets_of_text(value) if isinstance(value, str) else None


def correlation_id_from_text(value: Value | None) -> bytes | None:
    """Return the 24 bytes of a text, but None for 24 zero bytes: no correlation id (MQCI_NONE)."""
    octets = id_from_any_text(value)
    return None if octets == NO_ID else octets


CORRELATION_IDS: Final = frozenset({"JMSCorrelationID", "jms.Cid", "Root.MQMD.CorrelId"})
"""Names of the correlation id."""


def is_no_id(name: str, value: Value | None) -> bool:
    """Return whether a value is a correlation id of 24 zero bytes (MQCI_NONE): to selectors, NULL."""
    return name in CORRELATION_IDS and value in (NO_ID, _NO_ID_TEXT)


def read(name: str, value_of: Callable[[str], Value | None]) -> Value | None:
    """Return the value of the field `name`, in that name's type, of the message that `value_of` reads."""
    own = value_of(name) if name in SYNONYMS else None
    if own is not None:
        return own
    for source in DERIVED[name]:
        converted = source.convert(*map(value_of, source.names))
        if converted is not None:
            return converted
    return None


def _integer(value: Value | None) -> int | None:
    return value.value if isinstance(value, Byte | Short | Int | Long) else None


def _int(value: Value | None) -> Int | None:
    whole = _integer(value)
    return Int(whole) if whole is not None and -(2**31) <= whole < 2**31 else None


def _long(value: Value | None) -> Long | None:
    whole = _integer(value)
    return None if whole is None else Long(whole)


def _text(value: Value | None) -> str | None:
    return value if isinstance(value, str) else None


def _mapped(pairs: Mapping[Any, Value]) -> Convert:
    def convert(value: Value | None) -> Value | None:
        whole = _int(value)
        return pairs.get(value if whole is None else whole) if value is not None else None

    return convert


def _plus(step: int) -> Convert:
    def convert(value: Value | None) -> Int | None:
        whole = _integer(value)
        return None if whole is None else _int(Long(whole + step)) if abs(whole) < 2**62 else None

    return convert


def _positive(value: Value | None) -> bool | None:
    whole = _integer(value)
    return None if whole is None else whole > 0


# Expiry counts down in tenths of a second, JMSExpiration is a time: without a clock only "never" is both.
def _never(number: int, meant: Int | Long) -> Convert:
    return lambda value: meant if _integer(value) == number else None


def _date(value: Value | None) -> str | None:
    moment = _moment(value)
    return None if moment is None else moment.strftime("%Y%m%d").rjust(8, "0")


def _time(value: Value | None) -> str | None:
    moment = _moment(value)
    return None if moment is None else f"{moment:%H%M%S}{moment.microsecond // 10_000:02}"


def _moment(value: Value | None) -> datetime | None:
    milliseconds = _integer(value)
    if milliseconds is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:  # beyond the year 9999, which YYYYMMDD cannot write
        return None


def _timestamp(date: Value | None, time: Value | None) -> Long | None:
    if not isinstance(date, str) or not isinstance(time, str):
        return None
    if not _DATE.fullmatch(date) or not _TIME.fullmatch(time):
        return None
    try:
        moment = datetime.strptime(date + time[:6], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return Long((moment - _EPOCH) // timedelta(milliseconds=1) + 10 * int(time[6:]))


def _queue(value: Value | None) -> str | None:
    uri = _QUEUE_URI.match(value) if isinstance(value, str) else None
    return uri["queue"] or None if uri else None


def _queue_manager(value: Value | None) -> str | None:
    uri = _QUEUE_URI.match(value) if isinstance(value, str) else None
    return uri["manager"] or None if uri else None


def _queue_uri(queue: Value | None, manager: Value | None) -> str | None:
    if not isinstance(queue, str):
        return None
    return f"queue://{manager if isinstance(manager, str) else ''}/{queue}"


def _message_type(part: str) -> Convert:
    """Return a part of ``mcd://domain/set/type?format=fmt``; any other JMSType is all type."""

    def convert(value: Value | None) -> str | None:
        if not isinstance(value, str):
            return None
        matched = _MCD_URI.fullmatch(value)
        if matched is None:
            return value if part == "type" else None
        if part == "format":
            matched = _FORMAT.search(matched["query"] or "")
        return matched[part] or None if matched else None

    return convert


_MCD_URI = re.compile(
    r"mcd://[^/?]*(?:/(?P<set>[^/?]*)(?:/(?P<type>[^?]*))?)?(?:\?(?P<query>.*))?", re.DOTALL
)
_FORMAT = re.compile("(?:^|&)format=(?P<format>[^&]*)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ID = re.compile("ID:([0-9A-Fa-f]{48})")
_DATE, _TIME = re.compile("[0-9]{8}"), re.compile("[0-9]{8}")
_QUEUE_URI = re.compile("queue://(?P<manager>[^/?]*)/(?P<queue>[^?]*)")


def _same(convert: Convert, *names: str) -> dict[str, tuple[FieldSource, ...]]:
    """Return the sources of names that have one type."""
    return {name: tuple(FieldSource((other,), convert) for other in names if other != name) for name in names}


def _id(
    text: str, octets: str, from_text: Convert, *, alias: str | None = None
) -> dict[str, tuple[FieldSource, ...]]:
    """Return the sources of an id: a string, perhaps by two names, and 24 bytes."""
    texts = [text] if alias is None else [text, alias]
    fields = {octets: tuple(FieldSource((name,), from_text) for name in texts)}
    for name, sources in _same(_text, *texts).items():
        fields[name] = (*sources, FieldSource((octets,), id_to_text))
    return fields


_PERSISTENT = {"PERSISTENT": (Int(2), Int(1)), "NON_PERSISTENT": (Int(1), Int(0))}
_DLV = {mode: dlv for mode, (dlv, _) in _PERSISTENT.items()}
_PERSISTENCE = {mode: persistence for mode, (_, persistence) in _PERSISTENT.items()}
_MODE_OF_DLV = {dlv: mode for mode, dlv in _DLV.items()}
_MODE_OF_PERSISTENCE = {persistence: mode for mode, persistence in _PERSISTENCE.items()}
_DLV_OF_PERSISTENCE = {persistence: dlv for dlv, persistence in _PERSISTENT.values()}
_PERSISTENCE_OF_DLV = {dlv: persistence for dlv, persistence in _PERSISTENT.values()}


def _sources(*pairs: tuple[str | tuple[str, ...], Convert]) -> tuple[FieldSource, ...]:
    return tuple(
        FieldSource((names,) if isinstance(names, str) else names, convert) for names, convert in pairs
    )


_REPLY_TO = ("Root.MQMD.ReplyToQ", "Root.MQMD.ReplyToQMgr")

SYNONYMS: Final[Mapping[str, tuple[FieldSource, ...]]] = MappingProxyType(
    {
        **_id("JMSMessageID", "Root.MQMD.MsgId", id_from_text),
        **_id("JMSCorrelationID", "Root.MQMD.CorrelId", correlation_id_from_text, alias="jms.Cid"),
        **_id("JMSXGroupID", "Root.MQMD.GroupId", id_from_any_text, alias="jms.Gid"),
        **_same(_int, "JMSXGroupSeq", "jms.Seq", "Root.MQMD.MsgSeqNumber"),
        # For messages that are put on a queue: selectors read DELIVERY_MODE_OF_MQ.
        "JMSDeliveryMode": _sources(
            ("jms.Dlv", _mapped(_MODE_OF_DLV)), ("Root.MQMD.Persistence", _mapped(_MODE_OF_PERSISTENCE))
        ),
        "jms.Dlv": _sources(
            ("JMSDeliveryMode", _mapped(_DLV)), ("Root.MQMD.Persistence", _mapped(_DLV_OF_PERSISTENCE))
        ),
        "Root.MQMD.Persistence": _sources(
            ("JMSDeliveryMode", _mapped(_PERSISTENCE)), ("jms.Dlv", _mapped(_PERSISTENCE_OF_DLV))
        ),
        **_same(_int, "JMSPriority", "jms.Pri", "Root.MQMD.Priority"),
        "JMSExpiration": _sources(("jms.Exp", _long), ("Root.MQMD.Expiry", _never(-1, Long(0)))),
        "jms.Exp": _sources(("JMSExpiration", _long), ("Root.MQMD.Expiry", _never(-1, Long(0)))),
        "Root.MQMD.Expiry": _sources(("JMSExpiration", _never(0, Int(-1))), ("jms.Exp", _never(0, Int(-1)))),
        "JMSTimestamp": _sources(
            ("jms.Tms", _long), (("Root.MQMD.PutDate", "Root.MQMD.PutTime"), _timestamp)
        ),
        "jms.Tms": _sources(
            ("JMSTimestamp", _long), (("Root.MQMD.PutDate", "Root.MQMD.PutTime"), _timestamp)
        ),
        "Root.MQMD.PutDate": _sources(("JMSTimestamp", _date), ("jms.Tms", _date)),
        "Root.MQMD.PutTime": _sources(("JMSTimestamp", _time), ("jms.Tms", _time)),
        "JMSRedelivered": _sources(("Root.MQMD.BackoutCount", _positive)),
        "JMSXDeliveryCount": _sources(("Root.MQMD.BackoutCount", _plus(1))),
        "Root.MQMD.BackoutCount": _sources(("JMSXDeliveryCount", _plus(-1))),
        **_same(_text, "JMSDestination", "jms.Dst"),
        "JMSReplyTo": _sources(("jms.Rto", _text), (_REPLY_TO, _queue_uri)),
        "jms.Rto": _sources(("JMSReplyTo", _text), (_REPLY_TO, _queue_uri)),
        "Root.MQMD.ReplyToQ": _sources(("JMSReplyTo", _queue), ("jms.Rto", _queue)),
        "Root.MQMD.ReplyToQMgr": _sources(("JMSReplyTo", _queue_manager), ("jms.Rto", _queue_manager)),
        "JMSType": _sources(("mcd.Type", _text)),
        "mcd.Type": _sources(("JMSType", _message_type("type"))),
        "mcd.Set": _sources(("JMSType", _message_type("set"))),
        "mcd.Fmt": _sources(("JMSType", _message_type("format"))),
        **_same(_text, "JMSXAppID", "Root.MQMD.PutApplName"),
        **_same(_text, "JMSXUserID", "Root.MQMD.UserIdentifier"),
    }
)
"""Every name of a field that has several, with its sources in the order in which they are tried."""

DELIVERY_MODE_INT: Final = "JMSDeliveryMode:int"
DELIVERY_MODE_OF_MQ: Final = "JMSDeliveryMode:Dlv"
MESSAGE_ID: Final = "JMSMessageID:id"
CORRELATION_ID: Final = "JMSCorrelationID:id"
"""Header in another type: JMSDeliveryMode as the int 1 or 2 (in `ibm-mq` from its synonyms, too), an id as
its 24 bytes. No message has these names themselves.
"""

DERIVED: Final[Mapping[str, tuple[FieldSource, ...]]] = MappingProxyType(
    {
        **SYNONYMS,
        DELIVERY_MODE_INT: _sources(("JMSDeliveryMode", _mapped(_DLV))),
        DELIVERY_MODE_OF_MQ: _sources(
            ("jms.Dlv", _mapped({dlv: dlv for dlv in _MODE_OF_DLV})),
            ("JMSDeliveryMode", _mapped(_DLV)),
            ("Root.MQMD.Persistence", _mapped(_DLV_OF_PERSISTENCE)),
        ),
        MESSAGE_ID: _sources(("JMSMessageID", id_from_text)),
        CORRELATION_ID: _sources(("JMSCorrelationID", correlation_id_from_text)),
    }
)
"""Every derived field, without its prefix: the names from which it is converted."""


def identifier_of(attribute: str) -> str:
    """Return the name by which selectors read an attribute of the index, a derived field or a property."""
    name = attribute.removeprefix(PREFIX)
    return name.partition(":")[0] if name in DERIVED else attribute


SETTABLE: Final = frozenset({"JMSCorrelationID", "JMSReplyTo", "JMSType", "JMSXGroupID", "JMSXGroupSeq"})
"""JMS names of the fields that an application may set: "only … can be set using the MQI" (seed 003)."""


def may_be_set(name: str) -> bool:
    """Return whether an application may set the field of this name, by whichever of its names."""
    if name in SETTABLE:
        return True
    return any(other in SETTABLE for source in SYNONYMS.get(name, ()) for other in source.names)
