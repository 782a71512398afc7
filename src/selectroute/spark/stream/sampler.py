"""Sampler of messages of batches, for the registry's sample of recent messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from selectroute.registry.model import MAX_SAMPLED, sampled_form, sampled_text
from selectroute.registry.protocol import StreamReports
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import Message
from selectroute.spark.inputs.source import Source

_PAUSE_SECONDS: Final = 1.0
"""Shortest time between two samples: a stream may make many batches a second."""


class Sampler:
    """Sampler of one job. `note` may be called in any thread, `send` in one.

    Messages of the newest batch are read once more, so that workers have nothing to do with it. Bodies stay
    behind, and so do messages that are too long for the registry.

    Args:
        source: the source of the job.
        each: the most messages of a sample; 0 for no samples.
        clock: returns seconds.
    """

    def __init__(self, source: Source, each: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._each = each
        self._clock = clock
        self._inputs: Sequence[Any] | None = None
        self._sent: float | None = None

    def note(self, inputs: Sequence[Any]) -> None:
        """Remember the inputs of a batch, in the place of those of an earlier one."""
        if self._each:
            self._inputs = inputs

    def send(self, streams: StreamReports, query: str, at_once: bool = False) -> None:
        """Send a sample of the newest batch, if a second has passed since the last one, or ``at_once``.
        Raises the registry's errors. Inputs that can't be read are left out.
        """
        inputs = self._inputs
        now = self._clock()
        if inputs is None or not (at_once or self._sent is None or now >= self._sent + _PAUSE_SECONDS):
            return
        self._inputs, self._sent = None, now
        read = map(sampled_form, self._read(inputs))
        messages = [one for one in read if len(sampled_text(one)) <= MAX_SAMPLED]
        if messages:
            streams.note_messages(query, messages)

    def _read(self, inputs: Sequence[Any]) -> list[Message]:
        try:
            return self._source.sample(inputs, self._each)
        except (SelectRouteError, OSError, pa.ArrowException):
            return []
