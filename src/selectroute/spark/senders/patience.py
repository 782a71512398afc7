"""Waiting for destinations: retries of a system that does not answer, and a circuit breaker of destinations
that refuse, with the time that each may hold the stream back, and warnings.

::

    accepts ──full──→ waited for, while it has seconds left ──none left──→ tripped: tried once, without a wait
      └──────────────── a batch that it accepted completely ─────────────────┘

Each destination has its own budget of seconds. Waiting uses it up; it is refilled at a tenth of the time that
passes without waiting. So a destination that stays full costs the stream its budget once, and one that is
full again and again at most a tenth of the time. The state is in memory: a restarted job waits again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from selectroute.selector.errors import SelectRouteError

_Result = TypeVar("_Result")

_COMES_BACK: Final = 0.1
"""Seconds of budget refilled for each second that passes."""


class StoppingError(SelectRouteError):
    """Request to stop the job. The interrupted work is finished at the next start."""


class Waiting:
    """Destinations of one kind that are waited for, or that are tripped.

    Args:
        noun: the noun of a destination, such as "the queue".
        seconds: how long one may hold the stream back; ``inf`` for no limit.
        warn: called with a sentence when one is waited for, trips or accepts again.
        clock: returns seconds.
    """

    def __init__(
        self,
        noun: str,
        seconds: float,
        warn: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._noun = noun
        self.seconds = seconds
        self._warn = warn
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}
        self._waited_for: set[str] = set()
        self._tripped: set[str] = set()

    @property
    def count(self) -> int:
        """Number of destinations that are waited for or tripped."""
        return len(self._waited_for | self._tripped)

    @property
    def tripped(self) -> frozenset[str]:
        """Destinations that are no longer waited for."""
        return frozenset(self._tripped)

    def left(self, name: str) -> float:
        """Return the seconds for which a destination may be waited for; 0 if it is tripped."""
        return 0.0 if name in self._tripped else self.budget(name)

    def budget(self, name: str) -> float:
        """Return the remaining seconds of a destination, tripped or not."""
        if name not in self._left:
            return self.seconds
        seconds, at = self._left[name]
        if name in self._waited_for:  # not refilled while it is waited for, or the wait would never end
            return seconds
        return min(self.seconds, seconds + _COMES_BACK * (self._clock() - at))

    def waits(self, name: str, why: str) -> bool:
        """Begin to wait for a destination that refuses, or stop if it has no seconds left; return whether it
        is waited for. ``why`` is as in `begin`.
        """
        if self.left(name) > 0:
            self.begin(name, why)
            return True
        self.trip(name, why)
        return False

    def begin(self, name: str, why: str) -> None:
        """Begin to wait for a destination, with one warning; ``why`` is a clause: "the queue A is full"."""
        if name not in self._waited_for:
            self._left[name] = self.budget(name), self._clock()
            self._waited_for.add(name)
            if self.seconds == float("inf"):
                bound = "and so does the stream, without a limit"
            else:
                bound = f"for at most {self.left(name):.3g} s, and then become dead letters"
            self._warn(f"{why}: its deliveries wait, {bound}; all others are made")

    def waited(self, names: Collection[str], seconds: float) -> None:
        """Subtract seconds from the budgets of these destinations."""
        for name in names:
            self._left[name] = max(0.0, self.budget(name) - seconds), self._clock()

    def trip(self, name: str, why: str) -> None:
        """Stop waiting for a destination, with one warning."""
        self._waited_for.discard(name)
        if name not in self._tripped:
            self._tripped.add(name)
            self._warn(
                f"{why}: from now on, deliveries that it does not accept at once become dead letters, until "
                "it accepts a whole batch again"
            )

    def took(self, name: str) -> None:
        """Reset a destination that accepted all deliveries of a batch, with a warning if it was full."""
        if name in self._waited_for or name in self._tripped:
            self._waited_for.discard(name)
            self._tripped.discard(name)
            self._warn(f"{self._noun} {name} accepts messages again")


def patient(
    call: Callable[[], _Result],
    error: type[Exception],
    warn: Callable[[str], None],
    pause: Callable[[], bool],
) -> _Result:
    """Retry a call until it succeeds, and return its result.

    Args:
        call: the call.
        error: the error after which it is tried again; its text is the reason.
        warn: called with a sentence, once for as long as the reason stays the same.
        pause: waits some time; returns whether the job is to stop.

    Raises:
        StoppingError: the job is to stop.
    """
    warned = ""
    while True:
        try:
            return call()
        except error as failure:
            why = str(failure)
            if why != warned:
                warn(f"{why}: the stream waits")
                warned = why
            if pause():
                raise StoppingError(f"the job stopped while it waited: {why}") from failure
