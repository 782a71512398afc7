"""Plans of batches with deliveries to queues or topics: which task gets which input, and what is known of
these destinations.

A task that runs again must put and send the same, or its progress and its commit tokens would say nothing. So
before that, the plan is written to ``pins/<batch>.plan.json``, and a repeat of the batch reads it. It is
removed when the batch is published.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from selectroute.spark.batch.pins import Pin
from selectroute.spark.destinations.kafka_records import Topic
from selectroute.storage import Location
from selectroute.storage.owned import shared


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a batch.

    Attributes:
        batch: the number of the batch.
        revision, digest: the revision that it is routed with.
        input: the plan of its input, from `BatchInput.plan`.
        topics: the existing topics, with their limits and numbers of partitions.
        queues: the existing queues, with their maximum body lengths.
    """

    batch: int
    revision: int
    digest: str
    input: Mapping[str, Any]
    topics: Mapping[str, Topic]
    queues: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON, the inverse of `from_json`."""
        return {
            "batch": self.batch,
            "revision": self.revision,
            "digest": self.digest,
            "input": dict(self.input),
            "topics": {name: list(topic) for name, topic in sorted(self.topics.items())},
            "queues": dict(sorted(self.queues.items())),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Plan:
        """Read the plan that `to_json` returned."""
        topics = {name: Topic(*values) for name, values in content["topics"].items()}
        return cls(**{**content, "topics": topics})

    @property
    def sha256(self) -> str:
        """SHA-256 of the plan, which commit tokens and the progress of puts have."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def written_plan(pins: Location, pinned: Pin) -> Plan | None:
    """Return the plan of a batch that has begun with this pin; None if there is none."""
    content = _path(pins, pinned.batch).read_json()
    plan = None if content is None else Plan.from_json(content)
    if plan is None or (plan.revision, plan.digest) != (pinned.revision, pinned.digest):
        return None
    return plan


def write_plan(pins: Location, plan: Plan) -> None:
    """Write a new plan durably; decisions and digests that followed another one go.

    Raises:
        FileExistsError: in remote storage, another process has taken the job over, and planned the batch.
    """
    pins.make_folder()
    path = _path(pins, plan.batch)
    is_known = path.exists()
    if is_known:
        _forget(pins, plan.batch)
    if is_known or path.is_local:
        path.put_json(plan.to_json())
    else:
        path.put_new_json(plan.to_json())


def remove_plan(pins: Location, batch: int) -> None:
    """Remove the plan of a batch that is published, with decisions on schemas and digests of rows."""
    path = _path(pins, batch)
    if path.exists():  # as long as there is anything to forget
        _forget(pins, batch)
        path.delete()


def decisions_of(pins: Location, batch: int) -> Location:
    """Return the folder of a batch's decisions on schemas, which its tasks write. They belong to its plan."""
    return shared(pins) / f"{batch}.schemas"


def digests_of(pins: Location, batch: int) -> Location:
    """Return the folder of a batch's digests of the rows of a DataFrame, which its tasks write. They are a
    part of its plan.
    """
    return shared(pins) / f"{batch}.rows"


def begun_batches(pins: Location) -> list[int]:
    """Return the batches with a plan: they may have been put or sent in part, and are not published."""
    return [int(path.name.removesuffix(_ENDING)) for path in pins.files() if path.name.endswith(_ENDING)]


_ENDING = ".plan.json"


def _forget(pins: Location, batch: int) -> None:
    for folder in (decisions_of(pins, batch), digests_of(pins, batch)):
        folder.delete_folder()


def _path(pins: Location, batch: int) -> Location:
    return pins / f"{batch}{_ENDING}"
