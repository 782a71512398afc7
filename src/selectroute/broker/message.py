"""Message that a producer has published, as the broker has it until all its consumers have it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from selectroute.queues.errors import MQRC_PROPERTIES_TOO_BIG, failed
from selectroute.queues.message.from_stream import TOPIC
from selectroute.queues.message.message import CORRELATION, FIELDS, GROUP, MESSAGE_ID, SEQUENCE
from selectroute.queues.message.put_validation import MOST_PROPERTIES, ValidatedPut
from selectroute.queues.message.record import StoredMessage, expiry_at, message_of
from selectroute.selector.fields import NO_ID, id_from_any_text, id_from_text, id_to_text
from selectroute.selector.message import Message
from selectroute.selector.values import Int, Long, Value

_KEPT: Final = ("JMSType", "JMSReplyTo", "JMSDestination", CORRELATION)
"""Headers that a queue keeps as properties; the others are in its descriptor."""


class PublishedMessage:
    """Message that a producer has published.

    Attributes:
        body: the message as its protocol encodes it, from what consumers get unchanged.
        is_persistent: whether the message must survive the broker.
        priority: 0 to 9.
        expiration: time at which it expires, in milliseconds since 1970; 0 for never.
        headers: JMS headers by name, typed.
        properties: properties by name, typed.
        unlike: names of properties with a value of a type that no property has in JMS.
        topic: the topic; None for a message to a queue.
        due: time before which it is not delivered, in milliseconds since 1970; 0 for at once.
        origin: what its producer's connection is known by, for consumers without local messages.
    """

    __slots__ = (
        "_put",
        "_selected",
        "body",
        "due",
        "expiration",
        "headers",
        "is_persistent",
        "origin",
        "priority",
        "properties",
        "topic",
        "unlike",
    )

    def __init__(
        self,
        body: bytes,
        is_persistent: bool,
        priority: int,
        expiration: int,
        headers: dict[str, Value | None],
        properties: dict[str, Value | None],
        unlike: Iterable[str],
        topic: str | None,
        origin: object,
        due: int = 0,
    ) -> None:
        self.body = body
        self.is_persistent = is_persistent
        self.priority = priority
        self.expiration = expiration
        self.headers = headers
        self.properties = properties
        self.unlike = unlike
        self.topic = topic
        self.origin = origin
        self.due = due
        self._selected: Message | None = None
        self._put: ValidatedPut | None = None

    @classmethod
    def of_stored(cls, record: StoredMessage, without: Iterable[str]) -> PublishedMessage:
        """Return a message that is on a queue, without some of its properties, to publish it again."""
        selected = message_of(record, b"").selector_message
        properties = {name: value for name, value in selected.properties.items() if name not in without}
        topic = properties.pop(TOPIC, None)
        return cls(
            record.body,
            record.persistence,
            record.priority,
            record.expiration,
            dict(selected.headers),
            properties,
            (),
            topic if isinstance(topic, str) else None,
            None,
        )

    @property
    def selected(self) -> Message:
        """Message as selectors read it."""
        if self._selected is None:
            self._selected = Message.of_checked(self.headers, self.properties, self.topic, self.unlike)
        return self._selected

    def put(self, now_ms: int) -> ValidatedPut:
        """Return the message as queues take it, the same object each time.

        Raises MQError 2478 for more properties than a message on a queue has.
        """
        if self._put is None:
            self._put = self._validated(now_ms)
        return self._put

    def _validated(self, now_ms: int) -> ValidatedPut:
        headers = self.headers
        properties = {
            name: value
            for name, value in self.properties.items()
            if value is not None and name not in FIELDS and name != SEQUENCE
        }
        if len(properties) > MOST_PROPERTIES - len(_KEPT):
            raise failed(MQRC_PROPERTIES_TOO_BIG, f"a message has at most {MOST_PROPERTIES:,} properties")
        for name in _KEPT:
            value = headers.get(name)
            if value is not None:
                properties[name] = value
        message_id, correlation, group = (
            headers.get("JMSMessageID"),
            headers.get(CORRELATION),
            properties.get(GROUP),
        )
        octets = id_from_text(message_id)
        if message_id is not None and (octets is None or id_to_text(octets) != message_id):
            properties[MESSAGE_ID] = message_id
        if self.topic is not None:
            properties[TOPIC] = self.topic
        sequence = self.properties.get(SEQUENCE)
        timestamp = headers.get("JMSTimestamp")
        return ValidatedPut(
            self.body,
            octets,
            id_from_any_text(correlation) or NO_ID,
            id_from_any_text(group) or NO_ID,
            sequence.value if isinstance(sequence, Int) and sequence.value > 0 else 1,
            0,
            False,
            self.priority,
            self.is_persistent,
            expiry_at(self.expiration, now_ms),
            properties or None,
            timestamp.value if isinstance(timestamp, Long) and timestamp.value >= 0 else None,
            self.expiration,
            True,
        )
