"""Headers that a delivery over Kafka carries in addition to those of its message.

A record may also stand for all deliveries of a message to its topic: then ``selectroute-subscription`` lists
the subscriptions, separated by commas, ``selectroute-subscription-count`` is their number, and the delivery
id ends with ``*`` instead of a subscription.

Consumers may read ``selectroute-subscription``, ``selectroute-delivery-id`` (source / partition / offset /
subscription, the same in every attempt), ``selectroute-revision`` and ``selectroute-batch``: job / batch /
task / number. A job's batches count from 0, its side batches from -1 downwards, and the deliveries of each
task of a batch from 0. A record whose topic would refuse the time stamp of its source has that of sending,
and ``selectroute-source-timestamp``, in milliseconds.
"""

from __future__ import annotations

from typing import Final

SUBSCRIPTION: Final = "selectroute-subscription"
DELIVERY_ID: Final = "selectroute-delivery-id"
REVISION: Final = "selectroute-revision"
COUNT: Final = "selectroute-subscription-count"
BATCH: Final = "selectroute-batch"
SOURCE_TIMESTAMP: Final = "selectroute-source-timestamp"


def delivery_id(source: str, partition: int, offset: int, subscription: str) -> str:
    """Return the id of a delivery, from its message and subscription, independent of attempt and revision."""
    return f"{source}/{partition}/{offset}/{subscription}"
