"""Input files that were changed after they were read. A name is read once: the new content is never read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from selectroute.selector.explain.sentences import counted
from selectroute.spark.batch.commits import Commits
from selectroute.storage import Location
from selectroute.storage.location import Where

LOOKED_AT: Final = 2_000
"""Number of newest files that a running job and its status check for changes: some milliseconds."""

_LOOK_SECONDS: Final = 10.0
_CLOCK_SECONDS: Final = 2.0
"""Maximum difference between the clocks of a file server and of the driver."""

_MOST: Final = 5
"""Maximum number of warnings at once; the other files are counted in one more."""


class ChangedFile(NamedTuple):
    """Changed input file: the batch that read it, its path below the input folder, and the change."""

    batch: int
    source: str
    what: str

    @property
    def sentence(self) -> str:
        """Sentence about the change, and what to do."""
        return (
            f"{self.source} was changed after batch {self.batch} had read it ({self.what}); the new content "
            "is not read, because a name is read once: put it into the folder under another name"
        )


def changed_files(commits: Commits, folder: Where, newest: int | None = None) -> Iterator[ChangedFile]:
    """Yield the files that were changed after they were read, those of the newest batches first.

    Args:
        commits: the commits of the job.
        folder: the input folder of the job.
        newest: maximum number of files to check; None for all that were ever read.

    Raises DamagedFileError if a commit is damaged.
    """
    yield from filter(None, islice(_looked_at(commits, folder), newest))


def _looked_at(commits: Commits, folder: Where) -> Iterator[ChangedFile | None]:
    """Yield the change of each file that was read, None if it is unchanged."""
    for batch in reversed(commits.batches()):
        commit = commits.read(batch) or {}
        sizes = commit.get("inputs", {}).get("sizes", {})  # Kafka records have none
        if not sizes:
            continue
        where = Location.of(folder)  # the name of topics is not a location
        read_by = datetime.fromisoformat(commit["committed"]).timestamp() + _CLOCK_SECONDS
        for source, size in sizes.items():
            try:
                entry = (where / source).entry()
            except OSError:
                entry = None
            if entry is None:  # removed, which is allowed after a file was read
                yield None
                continue
            if size is not None and entry.size != size:
                what = f"it has {counted(entry.size, 'byte')}, and had {size:,}"
            elif entry.modified > read_by:
                what = "it was written later"
            else:
                yield None
                continue
            yield ChangedFile(batch, source, what)


class ChangeWatch:
    """Watch over files that are changed after a running job has read them, with one warning for each.

    Args:
        commits: the commits of the job.
        folder: the input folder of the job.
        warn: called with a sentence.
        clock: returns seconds.
    """

    def __init__(
        self,
        commits: Commits,
        folder: Path,
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commits = commits
        self._folder = folder
        self._warn = warn
        self._clock = clock
        self._looked: float | None = None
        self._known: set[ChangedFile] = set()

    def look(self, at_once: bool = False) -> None:
        """Check the newest files, unless they were checked seconds ago. Raises DamagedFileError."""
        now = self._clock()
        if not at_once and self._looked is not None and now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        found = list(changed_files(self._commits, self._folder, LOOKED_AT))
        new = [one for one in found if one not in self._known]
        self._known = set(found)
        for one in new[:_MOST]:
            self._warn(one.sentence)
        if len(new) > _MOST:
            self._warn(
                f"{len(new) - _MOST:,} more files were changed after they were read; `selectroute stream "
                "audit` names all of them"
            )
