"""Plans of batches: what their tasks have noted goes with them, in remote storage, too."""

import pytest

from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.bodies import Decisions
from selectroute.spark.batch.pins import (
    Pin,
    Plan,
    begun_batches,
    decisions_of,
    digests_of,
    remove_plan,
    write_plan,
    written_plan,
)
from selectroute.storage import Location
from selectroute.storage.local import LocalStorage
from selectroute.storage.owned import begin, owned


class Remote(LocalStorage):
    """A folder of this machine as if it were remote."""

    @property
    def local(self):
        return False


@pytest.fixture(params=["local", "remote"])
def pins(request, tmp_path):
    if request.param == "local":
        return Location.of(tmp_path / "pins")
    output = owned(Location(Remote(), str(tmp_path)), "pins")
    begin(output)
    return output / "pins"


def noted(tmp_path, pins):
    """Let a task of batch 3 decide, in a process of its own: it knows the folder by its URL."""
    missing = RecordError("read", "unknown-schema", "there is none")
    return Decisions(Location.of(str(decisions_of(pins, 3))), 0).decide(7, missing)


def test_decisions_of_tasks_are_removed_with_the_plan_and_by_another_plan(pins, tmp_path):
    plan = Plan(3, 1, "digest", {"tasks": 1}, {}, {})
    write_plan(pins, plan)
    assert noted(tmp_path, pins) is not None and (tmp_path / "pins" / "3.schemas").is_dir()
    write_plan(pins, Plan(3, 2, "other", {"tasks": 1}, {}, {}))
    assert not (tmp_path / "pins" / "3.schemas").exists()
    assert noted(tmp_path, pins) is not None
    digests = Location.of(str(digests_of(pins, 3)))
    digests.make_folder()
    (digests / "0-0.json").put(b"{}")
    remove_plan(pins, 3)
    assert begun_batches(pins) == []
    assert [one.name for one in (tmp_path / "pins").iterdir()] == []


def test_in_remote_storage_the_plan_of_another_process_is_not_replaced(tmp_path):
    first, second = (owned(Location(Remote(), str(tmp_path)), "pins") for _ in range(2))
    begin(first)
    begin(second)  # neither sees the other's plan
    write_plan(first / "pins", Plan(3, 1, "digest", {"tasks": 1}, {}, {}))
    with pytest.raises(FileExistsError):
        write_plan(second / "pins", Plan(3, 1, "digest", {"tasks": 2}, {}, {}))
    pinned = Pin(3, 1, "digest")
    assert written_plan(second / "pins", pinned) == Plan(3, 1, "digest", {"tasks": 1}, {}, {})
    write_plan(second / "pins", Plan(3, 1, "digest", {"tasks": 3}, {}, {}))
    assert written_plan(second / "pins", pinned).input == {"tasks": 3}, "one that is known can be replaced"
