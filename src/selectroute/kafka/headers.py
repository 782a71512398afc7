"""Headers that a delivery over Kafka carries in addition to those of its message.

A record may also stand for all deliveries of a message to its topic: then ``selectroute-subscription`` lists
the subscriptions, separated by commas, ``selectroute-subscription-count`` is their number, and the delivery
id ends with ``*`` instead of a subscription.

Consumers may read ``selectroute-subscription``, ``selectroute-delivery-id`` (source / partition / offset /
subscription, the same in every attempt), ``selectroute-revision`` and ``selectroute-batch``: the delivery's
*place*, job / batch / task / number, by which `Deduplicator` recognizes a repeat. A job's batches count from
0, its backfills from -1 downwards, and the deliveries of each task of a batch from 0. A committed delivery
keeps its place, so a repeat has the same one.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from selectroute.selector.errors import SelectRouteError

SUBSCRIPTION: Final = "selectroute-subscription"
DELIVERY_ID: Final = "selectroute-delivery-id"
REVISION: Final = "selectroute-revision"
COUNT: Final = "selectroute-subscription-count"
BATCH: Final = "selectroute-batch"

_PLACE: Final = re.compile(rb"([A-Za-z0-9._-]{1,128})/(-?\d{1,18})/(\d{1,9})/(\d{1,18})")


class DeliveryError(SelectRouteError):
    """Invalid header of a delivery, not written by this package."""


class Place(NamedTuple):
    """Position of a delivery among all that a job has sent."""

    job: str
    batch: int
    task: int
    number: int

    @classmethod
    def of(cls, header: bytes) -> Place:
        """Parse the header `BATCH`. The inverse of ``str``.

        Raises:
            DeliveryError: the header is not valid.
        """
        found = _PLACE.fullmatch(header)
        if found is None:
            raise DeliveryError(f"the header {BATCH} must be job/batch/task/number, not {header[:80]!a}")
        return cls(found[1].decode(), int(found[2]), int(found[3]), int(found[4]))

    def __str__(self) -> str:
        return f"{self.job}/{self.batch}/{self.task}/{self.number}"


def delivery_id(source: str, partition: int, offset: int, subscription: str) -> str:
    """Return the id of a delivery, from its message and subscription, independent of attempt and revision."""
    return f"{source}/{partition}/{offset}/{subscription}"
