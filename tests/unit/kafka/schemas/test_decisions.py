"""A task that runs again decides on missing schemas as it did before."""

import pytest

pytest.importorskip("confluent_kafka.schema_registry", reason="the extra `schemas` is not installed")

from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.bodies import Bodies, Decisions
from selectroute.kafka.schemas.registry import UNKNOWN, SchemaUnavailableError
from selectroute.storage import Location

BODY = b"\0\0\0\0\7{}"


class Known:
    """Schemas of which those with some ids are there."""

    def __init__(self, *ids, on_missing="dead-letter"):
        self.on_missing = on_missing
        self._ids = ids

    def decoder(self, id, paths):
        if id not in self._ids:
            raise SchemaUnavailableError(UNKNOWN, id, f"id {id} is not there")


def missing(folder, *ids, task=0, on_missing="dead-letter"):
    schemas = Known(*ids, on_missing=on_missing)
    found = Bodies([("a",)], schemas, Decisions(Location.of(folder), task)).missing(
        [BODY[:5]] * 2, [None] * 2
    )
    return {row: (error.stage, error.reason, error.problem) for row, error in found.items()}


def test_what_was_missing_stays_so_for_the_task_alone(tmp_path):
    folder = tmp_path / "0.schemas"
    dead = dict.fromkeys((0, 1), ("read", UNKNOWN, "id 7 is not there"))
    assert missing(folder) == dead
    assert missing(folder, 7) == dead
    assert missing(folder, 7, task=1) == {}


def test_what_was_there_is_waited_for(tmp_path):
    assert missing(tmp_path, 7) == {}
    with pytest.raises(SchemaUnavailableError, match="id 7 is not there"):
        missing(tmp_path)
    assert missing(tmp_path, 7) == {}


def test_of_two_attempts_the_first_decision_stands(tmp_path):
    first, second = Decisions(Location.of(tmp_path), 3), Decisions(Location.of(tmp_path), 3)
    error = RecordError("read", UNKNOWN, "gone")
    assert first.decide(7, None) is None
    assert second.decide(7, error) is None
    assert second.decide(8, error).problem == "gone"
    assert first.decide(8, None).problem == "gone"


def test_a_policy_to_wait_decides_nothing(tmp_path):
    with pytest.raises(SchemaUnavailableError):
        missing(tmp_path / "none", on_missing="wait")
    assert not (tmp_path / "none").exists()
