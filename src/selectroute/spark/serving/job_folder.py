"""Output folder of a job as a service shows it: its dead letters, their replays, and an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from selectroute.spark.audit.audit import audit
from selectroute.spark.batch.commits import REPLAY, Commits
from selectroute.spark.job.job import job_record
from selectroute.spark.replay.letters import Left, left_by_batch, wanted_letters
from selectroute.spark.replay.request import (
    ReplayFilterSpec,
    as_of_now,
    is_request_id,
    replays_of,
    waiting,
    write_request,
)
from selectroute.storage import Location
from selectroute.storage.location import Where


class JobFolder:
    """Output folder of a job, which may not have run yet; see `JobOutput` of the service."""

    def __init__(self, output: Where) -> None:
        self._output = Location.of(output)

    def has_run(self) -> bool:
        """Return whether the job has been started. Raises JobNotFoundError: what is there is another's."""
        if next(self._output.entries(), None) is None:
            return False
        job_record(self._output)
        return True

    def letters(
        self, wanted: Mapping[str, Sequence[Any]], skip: int, limit: int, left_only: bool = False
    ) -> list[dict[str, Any]]:
        """Return the dead letters that a filter finds, those of the newest batch first; with ``left_only``
        those that no replay took. O(letters before).
        """
        found = wanted_letters(self._output, _filter(wanted), newest_first=True, left_only=left_only)
        return [asdict(one) for one in islice(found, skip, skip + limit)]

    def left(self, wanted: Mapping[str, Sequence[Any]]) -> list[Left]:
        """Return the numbers of those that no replay took, by batch, the newest first."""
        return list(left_by_batch(self._output, as_of_now(self._output, _filter(wanted))))

    def waiting(self) -> list[str]:
        """Return the ids of the requests that the job has not carried out, the oldest first."""
        return [path.stem for path in waiting(self._output)]

    def replay(self, wanted: Mapping[str, Sequence[Any]], expected: int) -> tuple[str | None, int]:
        """File a request to replay those that a filter finds, if they are as many as expected; return its id,
        or None, and their number. Letters that come later are not part of it.
        """
        request = as_of_now(self._output, _filter(wanted))
        number = sum(one.letters for one in left_by_batch(self._output, request))
        if number != expected:
            return None, number
        write_request(self._output, request)
        return request.id, number

    def replayed(self, id: str) -> list[dict[str, Any]] | None:
        """Return the batches that came of a request, with their counts; None if it waits. Raises KeyError for
        an unknown request.
        """
        if not is_request_id(id):
            raise KeyError(id)
        batches = replays_of(self._output, id)
        if batches is None:
            if id not in self.waiting():
                raise KeyError(id)
            return None
        commits = Commits(self._output)
        found = []
        for batch in batches:
            commit = commits.read(batch) or {}
            counts = commits.counts(commit)
            names = ("messages", "routed", "unrouted", "dead_lettered", "deliveries", "refused")
            record = {"batch": batch, "revision": commit["revision"], "letters": commit[REPLAY]["letters"]}
            found.append(record | {name: counts[name] for name in names})
        return found

    def audit(self) -> dict[str, Any]:
        """Return what an audit says that does not read the published files: sizes and rows, as plain data."""
        found = audit(self._output, digests=False)
        counts = asdict(found.counts)
        return {
            "batches": found.batches,
            "backfills": found.backfills,
            "replays": found.replays,
            **{
                name: counts[name]
                for name in ("messages", "routed", "unrouted", "dead_lettered", "deliveries")
            },
            "files": found.files,
            "bytes": found.bytes,
            "pending": list(found.pending),
            "findings": [one._asdict() for one in found.findings],
        }


def _filter(wanted: Mapping[str, Sequence[Any]]) -> ReplayFilterSpec:
    return ReplayFilterSpec(**{name: tuple(values) for name, values in wanted.items()})
