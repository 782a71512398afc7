"""Decisions of one task whether schemas are available, the same whenever it runs again.

Where a record without its schema is a dead letter, a task that runs again may find a schema that was missing
before, or miss one that was there, after it has sent what it judged then. So each decision is a file of its
own, written before any record of the schema is judged. Of two attempts the first decision stands.
"""

from __future__ import annotations

from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.wire import SchemaId
from selectroute.storage import Location


class Decisions:
    """Decisions of one task.

    Args:
        folder: the folder of a batch, which need not exist yet.
        task: the number of the task.
    """

    def __init__(self, folder: Location, task: int) -> None:
        self._folder = folder
        self._task = task
        self._known: dict[SchemaId, RecordError | None] = {}

    def decide(self, id: SchemaId, found: RecordError | None) -> RecordError | None:
        """Return the decision on a schema: why it is not available, None if it is. It is what was ``found``
        unless an earlier attempt has decided. Raises OSError.
        """
        if id not in self._known:
            path = self._folder / f"{self._task}-{id}.json"
            content = {} if found is None else {"reason": found.reason, "problem": found.problem}
            self._folder.make_folder()
            try:
                path.put_new_json(content)
            except FileExistsError:
                content = path.read_json() or {}
            self._known[id] = RecordError("read", content["reason"], content["problem"]) if content else None
        return self._known[id]
