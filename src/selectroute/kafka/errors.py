"""Errors of records that are not valid messages."""

from __future__ import annotations

from selectroute.selector.errors import SelectRouteError


class RecordError(SelectRouteError):
    """Record that is not a valid message. Its dead letter has the same `stage` and `reason`."""

    def __init__(self, stage: str, reason: str, problem: str) -> None:
        super().__init__(stage, reason, problem)
        self.stage = stage
        self.reason = reason
        self.problem = problem

    def __str__(self) -> str:
        return self.problem
