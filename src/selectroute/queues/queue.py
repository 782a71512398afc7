"""What every queue does, in memory or in a database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Self

from selectroute.queues.message import NO_ID, NO_TOKEN, UNLIMITED, Descriptor, Message
from selectroute.queues.options import DEFAULT_MATCH
from selectroute.selector.selector import Selector

if TYPE_CHECKING:
    from types import TracebackType


class Unit(Protocol):
    """A unit of work: what is put in it becomes visible, and what is got in it is gone, when it is committed.

    Backed out, its puts never were and its gets are on the queue again, in their old places, each with a
    backout count that is one more. As a context manager it commits at the end and backs out on an exception.
    A unit that nobody can end any more, because its thread or process is dead, is backed out.
    """

    def commit(self) -> None:
        """End the unit. Raises MQError 2232 for one that has ended."""

    def backout(self) -> None:
        """End the unit as if nothing had been done in it. Raises MQError 2232 for one that has ended."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Cursor(Protocol):
    """A place on a queue while it is browsed. Not to be shared by threads.

    What `first` and `next` take means what it means to `Queue.get`. Messages that come or go meanwhile do not
    disturb it: `next` gives the first match behind the place where the cursor stands.
    """

    def first(
        self,
        match: int = DEFAULT_MATCH,
        *,
        msg_id: bytes = NO_ID,
        correl_id: bytes = NO_ID,
        group_id: bytes = NO_ID,
        msg_seq_number: int = 1,
        offset: int = 0,
        msg_token: bytes = NO_TOKEN,
        selector: str | Selector | None = None,
        wait: float | None = None,
        logical_order: bool = False,
    ) -> Message:
        """Return the first match on the queue and stand on it. Raises MQError 2033 and stays where it is."""

    def next(
        self,
        match: int = DEFAULT_MATCH,
        *,
        msg_id: bytes = NO_ID,
        correl_id: bytes = NO_ID,
        group_id: bytes = NO_ID,
        msg_seq_number: int = 1,
        offset: int = 0,
        msg_token: bytes = NO_TOKEN,
        selector: str | Selector | None = None,
        wait: float | None = None,
        logical_order: bool = False,
    ) -> Message:
        """Return the next match behind the cursor and stand on it; the first match if it stands nowhere yet.

        Raises MQError 2033 and stays where it is; 2259 if `logical_order` is not what it was before.
        """

    def under(self) -> Message:
        """Return the message on which the cursor stands. Raises MQError 2034 if it is gone, or none was."""

    def get_under(self, *, syncpoint: Unit | None = None) -> Message:
        """Get the message on which the cursor stands. Raises MQError 2034 if it is gone, or none was."""


class Queue(ABC):
    """Messages in order, each to be got once: by its place, by its ids or by a selector.

    Safe for any number of threads. Every call that fails raises `MQError` and changes nothing.
    """

    @abstractmethod
    def put(
        self,
        body: bytes = b"",
        *,
        msg_id: bytes | None = None,
        correl_id: bytes = NO_ID,
        group_id: bytes = NO_ID,
        msg_seq_number: int = 1,
        offset: int = 0,
        last_in_group: bool = False,
        priority: int | None = None,
        persistence: bool | None = None,
        expiry: int = UNLIMITED,
        properties: Mapping[str, object] | None = None,
        syncpoint: Unit | None = None,
    ) -> Descriptor:
        """Put a message and return its descriptor.

        Without a `msg_id`, or with 24 zero bytes, a unique one is made. `expiry` is in tenths of a second.
        `properties` are those of ``sr.Message``, and the headers that an application may set: JMSType,
        JMSReplyTo, JMSDestination, and JMSCorrelationID and JMSXGroupID, texts that also give their 24 bytes
        where these are not given. With `syncpoint` the message is there when that unit is committed, in the
        place that it has now.

        Raises MQError: 2004 for a body that is no bytes, 2013, 2018 for a unit of another queue, 2030 for a
        body or 2478 for properties beyond the limit, 2047, 2050, 2053 on a full queue, 2206, 2207, 2232,
        2250, 2251, 2258, 2442 for the name and 2473 for the value of a property.
        """

    @abstractmethod
    def get(
        self,
        match: int = DEFAULT_MATCH,
        *,
        msg_id: bytes = NO_ID,
        correl_id: bytes = NO_ID,
        group_id: bytes = NO_ID,
        msg_seq_number: int = 1,
        offset: int = 0,
        msg_token: bytes = NO_TOKEN,
        selector: str | Selector | None = None,
        wait: float | None = None,
        logical_order: bool = False,
        syncpoint: Unit | None = None,
    ) -> Message:
        """Take the first message that agrees with all fields in `match`, and with `selector`, off the queue.

        Fields without their option are not even looked at; nothing is ever written into what is given.
        `selector` is a text of the queue's dialect or a Selector of any. `wait` is how many seconds to wait
        for such a message, ``math.inf`` without end. With `syncpoint` the message comes back unless that unit
        is committed.

        `logical_order`: each thread has a group of its own, which it has begun; then the next message of
        that is got, whatever is ahead of it. Without one, the first message that begins a group, or is in
        none, and its group is begun. Options that do not apply must agree with the message that is got.

        Raises MQError: 2033 if there is none, 2018 for a unit of another queue, 2090 for a wait below 0,
        2206, 2207, 2232, 2247, 2250, 2251, 2258, 2331 for a token that is none or one to wait for, 2459 or
        2551 for an invalid selector.
        """

    def browse(
        self,
        match: int = DEFAULT_MATCH,
        *,
        msg_id: bytes = NO_ID,
        correl_id: bytes = NO_ID,
        group_id: bytes = NO_ID,
        msg_seq_number: int = 1,
        offset: int = 0,
        msg_token: bytes = NO_TOKEN,
        selector: str | Selector | None = None,
        wait: float | None = None,
        logical_order: bool = False,
        cursor: Cursor | None = None,
    ) -> Message:
        """Return what `get` would, and leave it on the queue; with a `cursor` the next match behind that."""
        return (self.cursor() if cursor is None else cursor).next(
            match,
            msg_id=msg_id,
            correl_id=correl_id,
            group_id=group_id,
            msg_seq_number=msg_seq_number,
            offset=offset,
            msg_token=msg_token,
            selector=selector,
            wait=wait,
            logical_order=logical_order,
        )

    @abstractmethod
    def cursor(self) -> Cursor:
        """Return a new cursor, which stands nowhere yet."""

    @abstractmethod
    def unit(self) -> Unit:
        """Begin a unit of work, for the `syncpoint` of puts and gets of this queue."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """How many messages could be got now: without those in units and those that have expired."""

    def __len__(self) -> int:
        return self.depth

    @abstractmethod
    def close(self) -> None:
        """Close the queue: who waits is told, units are backed out, and further calls raise MQError 2019."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
