"""How tests wait for what must come."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], seconds: float, what: str, every: float = 0.01) -> None:
    """Wait for something that must come. Raises AssertionError if it does not."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(every)
