"""Kafka records as messages, and deliveries as Kafka records, without Spark or a Kafka client.

`binding` maps record headers and fields of JSON bodies to properties; `record` converts a record to a message
by it, with `texts` for the values, and back. `headers` has the headers that a delivery carries. `batches`
reads and writes whole record batches, without an object for each record. `schemas` reads bodies that were
written with a schema registry. `client` connects to a cluster: it reads ranges of offsets, and writes in
transactions with commit tokens.
"""

from selectroute.kafka.binding import KafkaBinding, KafkaBindingError
from selectroute.kafka.errors import RecordError
from selectroute.kafka.headers import delivery_id
from selectroute.kafka.record import Record, message_of
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
