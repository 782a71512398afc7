"""Attempts of a batch's tasks: those that could not end are run again, while others are done.

A task that Kafka or a database does not answer, or that another attempt has overtaken, is run again until it
is done. A destination that refuses is waited for as long as its budget lasts (see `Waiting`); then it is
excluded, and its deliveries are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from selectroute.index.destination import KAFKA, QUEUE
from selectroute.spark.destinations.destination import StoppingError
from selectroute.spark.destinations.kafka.topics import KafkaTopics
from selectroute.spark.destinations.queues.queues import JobQueues
from selectroute.spark.job import CommitError, JobError
from selectroute.spark.sources.source import OfTasks
from selectroute.spark.task.task import TaskSettings

_ATTEMPT_SECONDS: Final = 15.0
"""Budget with which a topic that refused for too long is tried again."""

_MOST_FENCED: Final = 20
"""Attempts of a task that end because another began; with more, another process runs the job."""


_CLAUSES: Final = {
    KAFKA: "the topic {} refuses records ({})",
    QUEUE: "the queue {} is full: {}",
}

Held = dict[tuple[str, str], str]
"""Why destinations refuse, by kind and name."""


class Attempts:
    """Runs the tasks of batches.

    Args:
        queues, kafka: the queues and topics of the job, if it has such destinations.
        warn: called with a sentence when something holds the stream back.
        pause: waits some time; returns whether the job is to stop.
        outage: called with a sentence after each attempt that remote storage did not answer.
    """

    def __init__(
        self,
        queues: JobQueues | None = None,
        kafka: KafkaTopics | None = None,
        warn: Callable[[str], None] = lambda _: None,
        pause: Callable[[], bool] = lambda: True,
        outage: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kafka = kafka
        of_kinds = {QUEUE: queues, KAFKA: kafka}
        self._waiting = {
            kind: destinations.waiting for kind, destinations in of_kinds.items() if destinations is not None
        }
        self._warn = warn
        self._pause = pause
        self._outage = outage

    def complete(
        self,
        run: Callable[[OfTasks, Sequence[int]], list[dict[str, Any]]],
        work_of: Callable[[TaskSettings], OfTasks],
        settings: TaskSettings,
        count: int,
    ) -> list[dict[str, Any]]:
        """Run the tasks from 0 to below ``count`` until each is done; return their reports in order.

        Args:
            run: runs the tasks of these numbers.
            work_of: returns the work of the tasks for these settings.
            settings: the settings of the batch.

        Raises:
            StoppingError: the job is to stop before all tasks are done.
            CommitError: a task has no report, or more than one.
            JobError: another process runs the job.
        """
        done: dict[int, dict[str, Any]] = {}
        excluded = self._tripped()
        known: set[tuple[str, str]] = set()
        warned, fenced, looked = "", 0, time.monotonic()
        while left := [number for number in range(count) if number not in done]:
            reports = run(work_of(_excluding(settings, excluded)), left)
            if sorted(report["task"] for report in reports) != left:
                raise CommitError(f"{len(left)} tasks were run, and {len(reports)} reported")
            held: Held = {}
            why, is_outage = "", False
            for report in reports:
                if "waits" in report:
                    why, is_outage = report["waits"], report["outage"]
                elif of_task := {
                    destination: reason
                    for destination, reason in _held(report).items()
                    if destination not in excluded
                }:
                    held |= of_task
                    settings.files.discard(report.get("files", ()))
                else:
                    done[report["task"]] = report
            if why:
                fenced = fenced + 1 if any(report.get("fenced") for report in reports) else 0
                if fenced > _MOST_FENCED:
                    raise JobError(f"{why}; another process seems to run this job")
                if is_outage:  # its text has the file, which may be another each time
                    self._outage(f"{why}: the stream waits")
                elif why != warned:
                    self._warn(f"{why}: the stream waits")
                    warned = why
            since, looked = looked, time.monotonic()
            # A queue is full only after the others got theirs: this time is not its own.
            counted = {destination for destination in held if destination[0] == KAFKA or destination in known}
            excluded |= self._refusing(held, counted, looked - since)
            known |= held.keys()
            if (why or held.keys() - excluded.keys()) and self._pause():
                raise StoppingError(f"the job stopped while it waited: {why or _clause(*min(held.items()))}")
        self._took(done, excluded)
        if self._kafka is not None:
            self._kafka.read_to(destination.get("read_to", {}) for destination in _of_kind(done, KAFKA))
            self._kafka.forget(name for kind, name in excluded if kind == KAFKA)
        return [done[number] for number in range(count)]

    def _tripped(self) -> Held:
        """Return the destinations that are not waited for: tripped queues, which get what they have room for,
        and tripped topics without a budget for an attempt.
        """
        return {
            (kind, name): "it refused before"
            for kind, waiting in self._waiting.items()
            for name in waiting.tripped
            if kind == QUEUE or waiting.budget(name) < min(_ATTEMPT_SECONDS, waiting.seconds)
        }

    def _refusing(self, held: Held, counted: Collection[tuple[str, str]], seconds: float) -> Held:
        """Return those of these destinations that are to be excluded; wait for the others."""
        refusing: Held = {}
        for (kind, name), reason in held.items():
            waiting = self._waiting[kind]
            if (kind, name) in counted:
                waiting.waited([name], seconds)
            if not waiting.waits(name, _clause((kind, name), reason)):
                refusing[kind, name] = reason
        return refusing

    def _took(self, done: Mapping[int, Mapping[str, Any]], excluded: Held) -> None:
        """Record the destinations that accepted all deliveries of the batch."""
        for kind, waiting in self._waiting.items():
            reports = _of_kind(done, kind)
            sent = {name for report in reports for name in report.get("sent", ())}
            refused = {name for report in reports for name in report.get("refused", ())}
            if kind == KAFKA:
                refused |= {name for of_kind, name in excluded if of_kind == kind}
            for name in sent - refused:
                waiting.took(name)


def _of_kind(done: Mapping[int, Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return what the reports of tasks say of a kind of destinations."""
    return [report.get("outgoing", {}).get(kind, {}) for report in done.values()]


def _held(report: Mapping[str, Any]) -> Held:
    """Return the destinations that hold a task back."""
    of_kinds: dict[str, dict[str, Any]] = report.get("outgoing", {})
    return {
        (kind, name): why
        for kind, of_kind in of_kinds.items()
        for name, why in of_kind.get("held", {}).items()
    }


def _clause(destination: tuple[str, str], reason: str) -> str:
    kind, name = destination
    return _CLAUSES[kind].format(name, reason)


def _excluding(settings: TaskSettings, excluded: Held) -> TaskSettings:
    of_kind = {
        of: {name: why for (kind, name), why in excluded.items() if kind == of} for of in (QUEUE, KAFKA)
    }
    queues, kafka = settings.queues, settings.kafka
    if queues is not None:
        queues = replace(queues, excluded=frozenset(of_kind[QUEUE]))
    if kafka is not None:
        kafka = replace(kafka, excluded=of_kind[KAFKA])
    return replace(settings, queues=queues, kafka=kafka)
