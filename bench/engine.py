"""Engines: each can be checked, and each can be timed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from bench.workloads.oracle import Expected


@dataclass(frozen=True, slots=True)
class Timed:
    """What a run found, where an engine keeps the clock itself: part of the run is not to be timed, or each
    message is timed for itself.
    """

    matches: int
    seconds: float
    each_ns: npt.NDArray[Any] | None = None
    """Nanoseconds of each message."""
    processor_seconds: float = 0.0
    """Of all processes together, where that is measured."""


class Engine(ABC):
    """One engine with one set of rules and its messages."""

    name: str
    messages: int
    """How many messages, or whatever the benchmark counts, a run takes."""
    bytes_a_rule: float = 0.0
    """The memory of a rule, where it is known."""
    must_find: int | None = None
    """The number that every run returns if nothing is wrong, where the engine knows it."""

    @abstractmethod
    def judge(self) -> Expected:
        """Match the checked messages of the workload; the answer is compared with the expected counts."""

    @abstractmethod
    def run(self) -> int | Timed | None:
        """Match all messages: this is what is timed. Returns the matches where the engine knows them
        anyway.
        """

    def close(self) -> None:
        """Give back what the engine holds outside this process."""
        return None


class SkippedError(Exception):
    """An engine is left out here; the text is the reason, in a few words."""
