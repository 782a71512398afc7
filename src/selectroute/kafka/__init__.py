"""Kafka records as messages, deliveries as Kafka records, and a client that reads and writes record batches.

Without a Kafka client: `binding` maps record headers and fields of JSON bodies to properties; `record`
converts a record to a message by it, with `texts` for the values, and back, with the headers that a delivery
carries; it has the ranges of offsets. `batches` reads and writes whole record batches, without an object for
each record. `schemas` reads bodies that were written with a schema registry.

With kafka-python, which does the protocol: `config` has Kafka's own settings and the tokens for logins,
`cluster` the connections and their errors, `reading` fetches ranges, `transactions` writes, and `tokens`
says which attempt of a task has committed.
"""

from selectroute.kafka.binding import KafkaBinding, KafkaBindingError
from selectroute.kafka.errors import RecordError
from selectroute.kafka.record import Record, delivery_id, message_of
from selectroute.kafka.schemas.registry import SchemaRegistry, SchemaSettingsError

__all__ = [
    "KafkaBinding",
    "KafkaBindingError",
    "Record",
    "RecordError",
    "SchemaRegistry",
    "SchemaSettingsError",
    "delivery_id",
    "message_of",
]
