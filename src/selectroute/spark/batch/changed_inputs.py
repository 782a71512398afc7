"""Input files that were changed after they were read. A name is read once: the new content is never read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from selectroute.spark.batch.commits import Commits
from selectroute.spark.sources.files.source import ReadFile, read_files
from selectroute.storage import Location
from selectroute.storage.location import Where

LOOKED_AT: Final = 2_000
"""Number of newest files that a running job and its status check for changes: some milliseconds."""

_LOOK_SECONDS: Final = 10.0

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
    for file in islice(_newest_files(commits, commits.batches()), newest):
        # Only now: the name of topics, which have no files, is not a location.
        if (change := _change(file, Location.of(folder))) is not None:
            yield change


def _newest_files(commits: Commits, batches: Sequence[int]) -> Iterator[ReadFile]:
    for batch in reversed(batches):
        yield from read_files(commits.read(batch) or {})


def _change(file: ReadFile, folder: Location) -> ChangedFile | None:
    """Return the change of a file; None if it is unchanged, or was removed, which is allowed."""
    try:
        entry = (folder / file.source).entry()
    except OSError:
        return None
    what = None if entry is None else file.change(entry)
    return None if what is None else ChangedFile(file.batch, file.source, what)


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
        # Kept, because to read the commits of so many batches again takes most of a second.
        self._files: deque[ReadFile] | None = None
        self._batch = -1

    def look(self, at_once: bool = False) -> None:
        """Check the newest files, unless they were checked seconds ago. Raises DamagedFileError."""
        now = self._clock()
        if not at_once and self._looked is not None and now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        folder = Location.of(self._folder)
        changes = [change for file in self._newest() if (change := _change(file, folder)) is not None]
        new = [change for change in changes if change not in self._known]
        self._known = set(changes)
        for change in new[:_MOST]:
            self._warn(change.sentence)
        if len(new) > _MOST:
            self._warn(
                f"{len(new) - _MOST:,} more files were changed after they were read; `selectroute stream "
                "audit` names all of them"
            )

    def _newest(self) -> Iterable[ReadFile]:
        """Return the files that were read last, the newest first."""
        if self._files is None:
            batches = self._commits.batches()
            self._batch = max(batches, default=-1)
            self._files = deque(islice(_newest_files(self._commits, batches), LOOKED_AT), LOOKED_AT)
        while (commit := self._commits.read(self._batch + 1)) is not None:
            self._batch += 1
            self._files.extendleft(read_files(commit))
        return self._files
