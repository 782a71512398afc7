"""Attempts of a batch's tasks: those that could not end are run again, while others are done.

A task that Kafka does not answer, or whose transaction another attempt has ended, is run again until it is
done. A topic that refuses is waited for as long as its budget lasts (see `Waiting`); then it is excluded, and
its deliveries are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from selectroute.spark.job.job import CommitError, JobError
from selectroute.spark.runtime.tasks import Runner, Work
from selectroute.spark.senders.kafka import KafkaTopics
from selectroute.spark.senders.sender import StoppingError
from selectroute.spark.worker.task import TaskSettings

_ATTEMPT_SECONDS: Final = 15.0
"""Budget with which a topic that refused for too long is tried again."""

_FENCED: Final = 20
"""Attempts of a task that end because another began; with more, another process runs the job."""


class Attempts:
    """Runs the tasks of batches.

    Args:
        kafka: the topics of the job; None for a job without Kafka.
        warn: called with a sentence when something holds the stream back.
        pause: waits some time; returns whether the job is to stop.
    """

    def __init__(
        self,
        kafka: KafkaTopics | None = None,
        warn: Callable[[str], None] = lambda _: None,
        pause: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kafka = kafka
        self._waiting = None if kafka is None else kafka.waiting
        self._warn = warn
        self._pause = pause

    def complete(
        self, run: Runner, work_of: Callable[[TaskSettings], Work], settings: TaskSettings, count: int
    ) -> list[dict[str, Any]]:
        """Run the tasks from 0 to below ``count`` until each is done; return their reports in order.

        Args:
            run: runs some tasks.
            work_of: returns the work of a task for these settings.
            settings: the settings of the batch.

        Raises:
            StoppingError: the job is to stop before all tasks are done.
            CommitError: a task has no report, or more than one.
            JobError: another process runs the job.
        """
        done: dict[int, dict[str, Any]] = {}
        excluded = self._tripped()
        warned, fenced = "", 0
        while left := [number for number in range(count) if number not in done]:
            started = time.monotonic()
            own = settings if settings.kafka is None else _excluding(settings, excluded)
            reports = run(work_of(own), left)
            if sorted(report["task"] for report in reports) != left:
                raise CommitError(f"{len(left)} tasks were run, and {len(reports)} reported")
            held: dict[str, str] = {}
            why = ""
            for report in reports:
                if "waits" in report:
                    why = report["waits"]
                elif of_task := {k: v for k, v in report.get("held", {}).items() if k not in excluded}:
                    held |= of_task
                else:
                    done[report["task"]] = report
            if why:
                fenced = fenced + 1 if any(report.get("fenced") for report in reports) else 0
                if fenced > _FENCED:
                    raise JobError(f"{why}; another process seems to run this job")
                if why != warned:
                    self._warn(f"{why}: the stream waits")
                    warned = why
            excluded |= self._refusing(held, time.monotonic() - started)
            if (why or held.keys() - excluded.keys()) and self._pause():
                raise StoppingError(f"the job stopped while it waited: {why or next(iter(held.items()))}")
        self._took(done, excluded)
        if self._kafka is not None:
            self._kafka.read_to(report.get("read_to", {}) for report in done.values())
            self._kafka.forget(excluded)
        return [done[number] for number in range(count)]

    def _tripped(self) -> dict[str, str]:
        """Return the topics that are not tried: tripped ones without a budget for an attempt."""
        waiting = self._waiting
        if waiting is None:
            return {}
        least = min(_ATTEMPT_SECONDS, waiting.seconds)
        return {name: "it refused before" for name in waiting.tripped if waiting.budget(name) < least}

    def _refusing(self, held: Mapping[str, str], seconds: float) -> dict[str, str]:
        """Return those of these topics that are to be excluded; wait for the others."""
        found: dict[str, str] = {}
        if self._waiting is None:
            return found
        self._waiting.waited(held, seconds)
        for topic, reason in held.items():
            why = f"the topic {topic} refuses records ({reason})"
            if self._waiting.left(topic) > 0:
                self._waiting.begin(topic, why)
            else:
                self._waiting.trip(topic, why)
                found[topic] = reason
        return found

    def _took(self, done: Mapping[int, Mapping[str, Any]], excluded: Mapping[str, str]) -> None:
        """Record the topics that accepted all deliveries of the batch."""
        if self._waiting is None:
            return
        sent = {topic for report in done.values() for topic in report.get("sent", ())}
        for topic in sent - excluded.keys():
            self._waiting.took(topic)


def _excluding(settings: TaskSettings, excluded: Mapping[str, str]) -> TaskSettings:
    assert settings.kafka is not None
    return replace(settings, kafka=replace(settings.kafka, excluded=dict(excluded)))
