"""Patience with destinations that take nothing: how long each may hold the stream back, and its warnings.

::

    takes ──full──→ waited for, while it has seconds left ──none left──→ tripped: tried once, never waited for
      └──────────────── a batch of which it took everything ────────────────┘

Each destination has its own seconds. What was waited is gone, and comes back at a tenth of the time that
passes while nobody waits: so one that is full costs the stream its seconds once, and one that is full again
and again a tenth of the time at most. All this is in memory: a job that is started anew waits anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final

_COMES_BACK: Final = 0.1
"""Seconds of waiting that a destination gets back for each second that passes."""


class Waiting:
    """Destinations of one kind that are waited for, or that are tripped.

    Args:
        noun: what one is, such as "the queue".
        seconds: how long one may hold the stream back; ``inf`` for as long as it takes.
        warn: called with a sentence when one is waited for, trips or takes again.
        clock: gives seconds.
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
        self._said: set[str] = set()
        self._tripped: set[str] = set()

    @property
    def count(self) -> int:
        """Number of destinations that take nothing now: they are waited for, or are tripped."""
        return len(self._said | self._tripped)

    @property
    def tripped(self) -> frozenset[str]:
        """Destinations that are not waited for any more."""
        return frozenset(self._tripped)

    def left(self, name: str) -> float:
        """Return how many seconds one may be waited for; 0 for one that is tripped."""
        return 0.0 if name in self._tripped else self.budget(name)

    def budget(self, name: str) -> float:
        """Return how many seconds one has, tripped or not."""
        if name not in self._left:
            return self.seconds
        seconds, at = self._left[name]
        if name in self._said:  # nothing comes back while it is waited for, or the wait would never end
            return seconds
        return min(self.seconds, seconds + _COMES_BACK * (self._clock() - at))

    def begin(self, name: str, why: str) -> None:
        """Say, once, that one is waited for; ``why`` is a clause such as "the queue A is full"."""
        if name not in self._said:
            self._left[name] = self.budget(name), self._clock()
            self._said.add(name)
            if self.seconds == float("inf"):
                bound = "for as long as it takes, and so does the stream"
            else:
                bound = f"{self.left(name):.3g} s at most, and then becomes dead letters"
            self._warn(f"{why}: what is for it waits, {bound}; what is for others is delivered")

    def waited(self, names: Collection[str], seconds: float) -> None:
        """Note that these were waited for."""
        for name in names:
            self._left[name] = max(0.0, self.budget(name) - seconds), self._clock()

    def trip(self, name: str, why: str) -> None:
        """Note, and say once, that one is not waited for any more."""
        self._said.discard(name)
        if name not in self._tripped:
            self._tripped.add(name)
            self._warn(
                f"{why}: from now on what it does not take at once becomes dead letters, until it takes all "
                "of a batch again"
            )

    def took(self, name: str) -> None:
        """Note that one took all that a batch had for it; say so if it did not before."""
        if name in self._said or name in self._tripped:
            self._said.discard(name)
            self._tripped.discard(name)
            self._warn(f"{self._noun} {name} takes messages again")
