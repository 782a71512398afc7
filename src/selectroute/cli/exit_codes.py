"""Exit codes of the commands; 0 is success."""

from __future__ import annotations

from typing import Final

FAILURE: Final = 1
"""No match, or any failure that has no code of its own."""

USAGE: Final = 2
"""A wrong command line."""

NOT_FOUND: Final = 3
"""What is asked for is not there: a file, a subscription, a queue, a snapshot."""

CONFLICT: Final = 4
"""Something is in the way: a name that is taken, a stale revision, another job."""

INVALID_SELECTOR: Final = 5
"""A text that is not a selector."""
