"""Jobs that are killed at any of their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from selectroute.durable import disk

Steps = Sequence[tuple[Any, str]]

DISK: Steps = [
    (disk, name) for name in ("replace_bytes", "append_line", "rename", "move", "make_folder", "sync_folder")
]
"""The functions that make a durable step: owners and names."""


class Crash(BaseException):
    """The job is killed here."""


class Kill:
    """Kills what is in its ``with`` at the n-th call of these steps, before or after the step is done."""

    def __init__(self, at: int, after: bool, steps: Steps) -> None:
        self.at, self.after, self.steps = at, after, steps
        self.count, self.killed = 0, False

    def __enter__(self) -> Kill:
        self._patch = pytest.MonkeyPatch()
        for owner, name in self.steps:
            self._patch.setattr(owner, name, self._step(getattr(owner, name)))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._patch.undo()
        self.killed = kind is Crash
        return self.killed

    def _step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            self.count += 1
            is_last = self.count == self.at
            if is_last and not self.after:
                raise Crash
            done = real(*given, **named)
            if is_last:
                raise Crash
            return done

        return step


@contextmanager
def killed(at: int, steps: Steps, *, after: bool = True) -> Iterator[None]:
    """Kill what is in the ``with`` after or before this step, to which it must come."""
    with Kill(at, after, steps) as kill:
        yield
    assert kill.killed


def kills(after: bool, steps: Steps = DISK, *, least: int = 0) -> Iterator[tuple[int, Kill]]:
    """Kill what is done at its first step, at its second and so on; at last it ends by itself. There must be
    more steps than ``least``.
    """
    for at in range(1, 300):
        kill = Kill(at, after, steps)
        yield at, kill
        if not kill.killed and kill.count < at:
            assert at > least
            return
    pytest.fail("the steps never ended")
