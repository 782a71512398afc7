"""Verification of a registry in a process of its own, beside a service that uses it already.

``python -m selectroute.registry.verification`` reads the URL of a database from standard input and writes a
line of JSON: ``{"verified": true}``, ``{"damaged": "the table …"}`` or ``{"failed": "the database …"}``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final, Literal

from selectroute.registry.registry import Registry
from selectroute.store.errors import DamagedError, StoreError

VERIFIED_FIRST: Final = 20_000
"""Rows of a registry that are verified before a service starts, in about a second; more are verified beside
it.
"""

_NICE: Final = 10
"""Priority of the process, below that of the service."""

State = Literal["running", "verified", "damaged", "failed"]


class Verification:
    """Process that verifies a database. The service goes on meanwhile: each row that it reads is compared
    with its digest anyway.

    Args:
        url: the URL of the database, with its password.
        told: called with the state and its reason when the process ends, in a thread.
    """

    def __init__(self, url: str, told: Callable[[State, str | None], None]) -> None:
        self.state: State = "running"
        self.reason: str | None = None
        self._told = told
        self._stopped = False
        # The URL is not an argument: every user of the machine can see those.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._wait, args=(url,), name="selectroute-verify", daemon=True).start()

    def stop(self) -> None:
        """Stop the process if it is still running."""
        self._stopped = True
        self._process.terminate()

    def _wait(self, url: str) -> None:
        answer, _ = self._process.communicate(url)
        if self._stopped:
            return
        try:
            state, reason = next(iter(json.loads(answer).items()))
        except (ValueError, StopIteration):
            state, reason = "failed", f"its process ended with the code {self._process.returncode}"
        self.reason = reason if isinstance(reason, str) else None
        self.state = state
        self._told(self.state, self.reason)


def verified(registry: Registry, told: Callable[[State, str | None], None]) -> Verification | None:
    """Verify a registry: a small one at once, a large one in a process of its own, which is returned.

    Raises `DamagedError`.
    """
    if registry.rows <= VERIFIED_FIRST:
        registry.verify()
        return None
    return Verification(registry.url, told)


def _main() -> None:
    os.nice(_NICE)
    try:
        Registry.open(sys.stdin.read(), create=False).close()
        answer: dict[str, bool | str] = {"verified": True}
    except DamagedError as error:
        answer = {"damaged": str(error)}
    except StoreError as error:
        answer = {"failed": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _main()
