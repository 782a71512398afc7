"""The log of the process that runs the tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def log_as_before() -> Iterator[None]:
    """Put the log of this process back, which a command that serves sets up."""
    loggers = [logging.getLogger(name) for name in ("selectroute.service", "uvicorn")]
    before = [(one.handlers, one.level, one.propagate) for one in loggers]
    yield
    for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)
