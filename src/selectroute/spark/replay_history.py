"""What backfills and replays were made, as replays need it: who got what, and which letters were taken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selectroute.spark.commits import BACKFILL, REPLAY, Commits, kind_of
from selectroute.spark.replay_letters import Cover, Scope, batches_with_letters, letters_left
from selectroute.spark.replay_request import Wanted, as_of_now


class History:
    """What backfills and replays were made, as replays need it: from the commits, each read once."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._read_to = 0
        self._kinds: dict[int, str] = {}
        self._records: dict[int, dict[str, Any]] = {}
        self._given: defaultdict[int, set[str]] = defaultdict(set)
        self._covers: defaultdict[int, list[Cover]] = defaultdict(list)
        self._of_request: defaultdict[str, list[int]] = defaultdict(list)
        self._handled: defaultdict[str, set[int]] = defaultdict(set)

    def read(self) -> None:
        """Read what was committed since."""
        for number in range(self._read_to - 1, self._commits.next_aside(), -1):
            commit = self._commits.read(number) or {}
            self._kinds[number] = kind = kind_of(commit)
            record = self._records[number] = commit.get(kind, {})
            if kind == BACKFILL:
                for batch in record["batches"]:
                    self._given[batch].update(record["subscriptions"])
            elif kind == REPLAY:
                cover = Cover.of(record)
                for batch in record["batches"]:
                    self._covers[batch].append(cover)
                self._of_request[record["request"]].append(number)
                self._handled[record["request"]].update(record["batches"])
            self._read_to = number

    def covers(self, batch: int) -> Sequence[Cover]:
        """What replays took of the letters of a batch."""
        return self._covers[batch]

    def replays_of(self, request: str) -> list[int]:
        """The replays that were made for a request."""
        return self._of_request[request]

    def handled(self, request: str) -> set[int]:
        """The batches of these replays."""
        return self._handled[request]

    def only(self, batch: int) -> tuple[str, ...] | None:
        """The subscriptions that alone the letters of a batch concern; None for no such bound."""
        if batch >= 0:
            return None
        record = self._records[batch]
        found = record["subscriptions"] if self._kinds[batch] == BACKFILL else record["only"]
        return None if found is None else tuple(found)

    def origins(self, batch: int) -> frozenset[int]:
        """The batches of the stream from which the letters of a batch come."""
        waiting_, found = [batch], set()
        while waiting_:
            one = waiting_.pop()
            if one >= 0:
                found.add(one)
            else:
                waiting_ += self._records[one]["batches"]
        return frozenset(found)

    def scope(self, origin: int, only: tuple[str, ...] | None) -> Scope:
        """Who may get messages of a batch of the stream that were dead letters."""
        return Scope(None, tuple(sorted(self._given[origin]))) if only is None else Scope(only)


def count_left(output: Path, wanted: Wanted) -> Counter[tuple[str, str]]:
    """Return how many dead letters a request would have replayed that is made now, by stage and reason.

    Raises:
        JobError: the folder is no job's, or a file of theirs can't be read.
    """
    request, commits = as_of_now(output, wanted), Commits(output)
    history = History(commits)
    history.read()
    found: Counter[tuple[str, str]] = Counter()
    for batch in batches_with_letters(output):
        if request.means(batch) and commits.is_committed(batch):
            letters = letters_left(output, batch, wanted, history.covers(batch))
            for row in letters.group_by(["stage", "reason"]).aggregate([([], "count_all")]).to_pylist():
                found[row["stage"], row["reason"]] += row["count_all"]
    return found
