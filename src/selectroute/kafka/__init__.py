"""Kafka, as data: what a record is as a message, and what a delivery says of itself.

`binding` says which header, or field of a JSON body, is which property; `record` makes a message of a record
by it, with `texts` for the values. `headers` are those that a delivery carries, and `deduplicate` drops the
repeats of at-least-once deliveries (`repeats` says why that is exact). Nothing here needs a client of Kafka,
nor Spark.
"""

from selectroute.kafka.binding import KafkaBinding, KafkaBindingError
from selectroute.kafka.headers import DeliveryError, Place, delivery_id
from selectroute.kafka.record import Record, RecordError, message_of
from selectroute.kafka.repeats import Deduplicator, deduplicate

__all__ = [
    "Deduplicator",
    "DeliveryError",
    "KafkaBinding",
    "KafkaBindingError",
    "Place",
    "Record",
    "RecordError",
    "deduplicate",
    "delivery_id",
    "message_of",
]
