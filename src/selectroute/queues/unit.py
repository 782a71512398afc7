"""Units of work: puts and gets that are committed or backed out together."""

from __future__ import annotations

from typing import Any, Generic, Protocol, Self, TypeVar

from selectroute.queues.errors import MQRC_UNIT_OF_WORK_NOT_STARTED, failed
from selectroute.queues.lookup import GroupPosition, Handle, position_after
from selectroute.queues.message.record import StoredMessage

State = TypeVar("State")


class UnitStore(Protocol):
    """Store whose messages a unit puts and gets."""

    @property
    def unit_scope(self) -> object:
        """Database that a unit may span, or the store itself."""

    def end_unit(self, unit: UnitOfWork[Any], *, commit: bool, counts: bool = True) -> None:
        """Commit a unit or back it out; `counts` as of `UnitOfWork.backout`."""

    def forget_unit(self, state: Any) -> None:
        """Back out an unreachable unit, by its state.

        Called when the unit's memory is freed, possibly during another call of this store.
        """


class UnitOfWork(Generic[State]):
    """Unit of work: on commit its puts become visible and its gets permanent.

    On backout its puts are discarded and its gets return to the queue, each at its old position. As a context
    manager it commits at the end and backs out on an exception. An unreachable unit, of a dead thread or
    process, is backed out. In a database a unit spans all of its queues.

    `state` is the store's data for ending this unit.
    """

    __slots__ = ("_positions", "_store", "ended", "state")

    def __init__(self, store: UnitStore, state: State) -> None:
        self._store = store
        self.state = state
        self.ended = False
        self._positions: dict[Handle, tuple[GroupPosition | None, GroupPosition | None]] = {}

    def commit(self) -> None:
        """Commit the unit. O(puts) in memory. Raises MQError 2232 for one that has ended."""
        self._store.end_unit(self, commit=True)

    def backout(self, *, counts: bool = True) -> None:
        """Back the unit out. O(gets) in memory. Raises MQError 2232 for one that has ended.

        The backout counts of its gets are raised by one. With `counts` false they stay: the messages were got
        and never looked at.
        """
        self._store.end_unit(self, commit=False, counts=counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self.ended:
            self._store.end_unit(self, commit=kind is None)

    def __del__(self) -> None:
        if not self.ended:
            self._store.forget_unit(self.state)

    # ---- for the queue and the store

    def belongs_to(self, store: UnitStore) -> bool:
        """Return whether the unit may put and get messages of this store."""
        return self._store.unit_scope is store.unit_scope

    def check(self) -> None:
        """Check that the unit has not ended. Raises MQError 2232."""
        if self.ended:
            raise failed(MQRC_UNIT_OF_WORK_NOT_STARTED, "the unit was committed or backed out")

    def moved(self, handle: Handle, before: GroupPosition | None) -> None:
        """Record the position of a handle before a get of this unit moved it."""
        first, _ = self._positions.get(handle, (before, None))
        self._positions[handle] = first, handle.position

    def restore_positions(self) -> None:
        """Move handles back to their positions before the unit, except those moved by other calls since.

        "The information … is restored to the value that it had prior to the first successful MQGET call …
        in the current unit of work" (IBM MQ, MQBACK).
        """
        for handle, (before, after) in self._positions.items():
            if handle.position is after:
                handle.position = before


def move(handle: Handle, record: StoredMessage, unit: UnitOfWork[Any] | None) -> None:
    """Move a handle to a message that was got in logical order, in a unit until this is backed out."""
    before = handle.position
    handle.position = position_after(record, before)
    if unit is not None:
        unit.moved(handle, before)
