"""Puts of one attempt of a task: its pending deliveries, in transactions of a bounded size."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from selectroute.queues.sql.deliveries import DONE, Delivery, Progress, QueueDeliveries, TaskKey

_CHUNK: Final = 2_000
"""Deliveries per transaction: other writers wait at most a tenth of a second for it."""

_CHUNK_BYTES: Final = 16 << 20


class TaskPuts:
    """Puts of one attempt, from the first delivery of the task to the last.

    Args:
        database: the database of queues.
        task: the task.
        excluded: queues whose deliveries are given up at the first without room.

    Attributes:
        progress: the progress of the task.
        closed: the queues without room in this attempt, with their maximum depth.

    Calls raise OvertakenError if another attempt has continued the task.
    """

    def __init__(self, database: QueueDeliveries, task: TaskKey, excluded: Collection[str] = ()) -> None:
        self._database = database
        self._task = task
        self._excluded = excluded
        self.progress = database.progress(task)
        self.closed: dict[str, int] = {}

    def waits(self, number: int, queue: str) -> bool:
        """Return whether a delivery is to be put by this attempt."""
        return queue not in self.closed and self.progress.is_pending(number, queue)

    @property
    def is_rest_done(self) -> bool:
        """True if only deliveries to full queues are left of the task."""
        return self.progress.next == DONE

    def take_over(self) -> None:
        """Go on as the only attempt, if there was one before."""
        if self.progress != Progress():
            self.progress = self._database.take_over(self._task, self.progress)

    def put(self, deliveries: Iterable[tuple[int, Delivery]]) -> None:
        """Put those of the next deliveries that are pending."""
        chunk: list[tuple[int, Delivery]] = []
        size = 0
        for number, one in deliveries:
            if not self.waits(number, one.queue):
                continue
            chunk.append((number, one))
            size += len(one.message.body)
            if len(chunk) >= _CHUNK or size >= _CHUNK_BYTES:
                self._put(chunk)
                chunk, size = [], 0
        if chunk:
            self._put(chunk)

    def is_held_up(self) -> bool:
        """Return whether only full queues are left of the task, which still have no room."""
        held = self.progress.held
        if not self.is_rest_done or not held or not held.keys().isdisjoint(self._excluded):
            return False
        rooms = self._database.rooms(held)
        full = {name: room.max_depth for name, room in rooms.items() if room is not None and room.left <= 0}
        if full.keys() != held.keys():
            return False
        self.closed = full
        return True

    def finish(self) -> None:
        """Record that all is put, after the last delivery, if queues were held."""
        held = self.progress.held
        if held and (not self.is_rest_done or held.keys() != self.closed.keys()):
            self.progress = self._database.finish(self._task, self.progress, self.closed)

    def _put(self, chunk: list[tuple[int, Delivery]]) -> None:
        self.progress = self._database.put(self._task, self.progress, chunk, self.closed, self._excluded)
