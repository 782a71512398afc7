"""Headers that a delivery over Kafka carries beside those of its message.

``selectroute-subscription``, ``selectroute-delivery-id`` (source / partition / offset / subscription: whose
message for whom, the same in every attempt) and ``selectroute-revision`` are for consumers to read. So is
``selectroute-batch``, the delivery's *place*: job / batch / task / number, by which `Deduplicator` knows a
repeat. A job's batches are numbered from 0, its backfills from -1 downwards, and the deliveries of each task
of a batch from 0; what is committed has its places for good, so a repeat has the same.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from selectroute.selector.errors import SelectRouteError

PREFIX: Final = "selectroute-"
SUBSCRIPTION: Final = "selectroute-subscription"
DELIVERY_ID: Final = "selectroute-delivery-id"
REVISION: Final = "selectroute-revision"
BATCH: Final = "selectroute-batch"

_PLACE: Final = re.compile(rb"([A-Za-z0-9._-]{1,128})/(-?\d{1,18})/(\d{1,9})/(\d{1,18})")


class DeliveryError(SelectRouteError):
    """A header of a delivery that is not what this package writes."""


class Place(NamedTuple):
    """Where a delivery stands in what a job has sent."""

    job: str
    batch: int
    task: int
    number: int

    @classmethod
    def of(cls, header: bytes) -> Place:
        """Read the header `BATCH`. The inverse of ``str``.

        Raises:
            DeliveryError: it is anything else.
        """
        found = _PLACE.fullmatch(header)
        if found is None:
            raise DeliveryError(f"the header {BATCH} is job/batch/task/number, not {header[:80]!a}")
        return cls(found[1].decode(), int(found[2]), int(found[3]), int(found[4]))

    def __str__(self) -> str:
        return f"{self.job}/{self.batch}/{self.task}/{self.number}"


def delivery_id(source: str, partition: int, offset: int, subscription: str) -> str:
    """Return the id of a delivery: which message, for whom. It does not depend on attempt or revision."""
    return f"{source}/{partition}/{offset}/{subscription}"
