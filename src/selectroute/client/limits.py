"""Timeouts and sizes of a client. Imports nothing: default values need no HTTP library."""

from __future__ import annotations

from typing import Final

TIMEOUT_SECONDS: Final = 30.0
"""Longest time until a response."""

BULK_SECONDS: Final = 3600.0
"""Longest time of an import after its last line is sent, and of an export until its first line comes."""

MAX_WAIT_SECONDS: Final = 30.0
"""Longest time that a service lets a request wait for a change, a batch or a message."""

MOST_CHANGES: Final = 1_000
"""Changes in one response at most."""
