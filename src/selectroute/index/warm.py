"""Compilation of the matching kernel ahead of the first match."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from selectroute.arrays.segment import CROWDED
from selectroute.index.changes import Replace
from selectroute.index.index import Index
from selectroute.match.compiled import cache_folder, compilations
from selectroute.match.encoding.lanes import FEWEST_ROWS
from selectroute.match.match import match
from selectroute.match.single import match_one
from selectroute.selector.message import Message


@dataclass(frozen=True, slots=True)
class Warmed:
    """Report of `warm`.

    ``folder`` is the cache of the compiled code, None if there is none; ``seconds`` the time taken;
    ``compiled`` the number of functions that were compiled, 0 if the cache had them all.
    """

    folder: Path | None
    seconds: float
    compiled: int

    def __str__(self) -> str:
        where = (
            "not kept: there is no private directory for the cache, set NUMBA_CACHE_DIR to one"
            if self.folder is None
            else f"kept in {self.folder}"
        )
        done = f"compiled in {self.seconds:.0f} s" if self.compiled else "was already compiled"
        return f"the matching kernel {done}, {where}"


def warm() -> Warmed:
    """Compile the matching kernel ahead of the first match, for this user and machine.

    Takes about a minute once, then under a second. The code is cached in ``NUMBA_CACHE_DIR``, or
    else ``XDG_CACHE_HOME``, or else ``~/.cache``. Of several processes one compiles, and the others wait.
    """
    start, before = time.perf_counter(), compilations()
    warm_up()
    return Warmed(cache_folder(), time.perf_counter() - start, compilations() - before)


def warm_up() -> None:
    """Compile the kernel, or load it from the cache; see `warm`."""
    index = Index()
    index.add("any", "name = 'value' AND number > 0")
    index.add("prefix", "name LIKE 'val%'")
    for number in range(CROWDED):
        index.add(f"pattern-{number}", f"name LIKE '%{number}%e'")
    snapshot = index.freeze()
    # With one segment and with several, whose ordinals another function copies. Strings are only numbered
    # for this many rows and patterns.
    rows = pa.record_batch({"name": ["value"] * FEWEST_ROWS, "number": [1] * FEWEST_ROWS})
    message = Message(properties={"name": "value", "number": 1})
    for state in (snapshot, snapshot.changed([Replace("any", "name = 'value'")])):
        match(state, rows)
        match_one(state, message)
