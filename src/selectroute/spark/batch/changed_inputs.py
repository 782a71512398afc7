"""Input files that changed after they were read. A name is read once: what they have now is never read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from selectroute.selector.explain.sentences import counted
from selectroute.spark.batch.commits import Commits

LOOKED_AT: Final = 2_000
"""Of so many files, the newest, a running job and its status look whether they changed: some milliseconds."""

_LOOK_SECONDS: Final = 10.0
_CLOCK_SECONDS: Final = 2.0
"""By so much the clocks of a file server and of the driver may differ."""

_MOST: Final = 5
"""Warnings of files that are met at once; the others are counted in one more."""


class ChangedFile(NamedTuple):
    """Input file that changed: the batch that read it, its path below the input folder, and what changed."""

    batch: int
    source: str
    what: str

    @property
    def sentence(self) -> str:
        """Sentence that says what the change means, and what to do."""
        return (
            f"{self.source} changed after batch {self.batch} had read it ({self.what}); what it has now is "
            "not read, for a name is read once: put it into the folder under another name"
        )


def changed_files(commits: Commits, folder: Path, newest: int | None = None) -> Iterator[ChangedFile]:
    """Yield the files that are others than when they were read, those of the newest batches first.

    Args:
        commits: of the job.
        folder: its input folder.
        newest: look at so many files at most; None for all that were ever read.

    Raises DamagedFileError if a commit is not what was written.
    """
    yield from filter(None, islice(_looked_at(commits, folder), newest))


def _looked_at(commits: Commits, folder: Path) -> Iterator[ChangedFile | None]:
    """Yield something for each file that was read: what changed, or None."""
    for batch in reversed(commits.batches()):
        commit = commits.read(batch) or {}
        sizes = commit.get("inputs", {}).get("sizes", {})  # records of Kafka have none
        if not sizes:
            continue
        read_by = datetime.fromisoformat(commit["committed"]).timestamp() + _CLOCK_SECONDS
        for source, size in sizes.items():
            try:
                status = (folder / source).stat()
            except OSError:  # gone: files may be removed when they were read
                yield None
                continue
            if size is not None and status.st_size != size:
                what = f"it has {counted(status.st_size, 'byte')}, and had {size:,}"
            elif status.st_mtime > read_by:
                what = "it was written to since"
            else:
                yield None
                continue
            yield ChangedFile(batch, source, what)


class ChangeWatch:
    """Warns, once for each, of files that changed after a running job had read them.

    Args:
        commits: of the job.
        folder: its input folder.
        warn: called with a sentence.
        clock: gives seconds.
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
        """Look at the newest files, unless that was done some seconds ago. Raises DamagedFileError."""
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
                f"{len(new) - _MOST:,} more files changed after they were read; `selectroute stream audit` "
                "names all of them"
            )
