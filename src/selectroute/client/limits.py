"""Time limits and sizes of a client. Importing them loads nothing: a default needs no HTTP library."""

from __future__ import annotations

from typing import Final

TIMEOUT_SECONDS: Final = 30.0
"""How long an answer may take."""

BULK_SECONDS: Final = 3600.0
"""How long an import may take once its last line is sent, and an export until its first line comes."""

MAX_WAIT_SECONDS: Final = 30.0
"""How long a service lets a request wait for a change, a batch or a message."""

MOST_CHANGES: Final = 1_000
"""Changes that a service gives at once."""
