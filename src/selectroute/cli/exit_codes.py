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

EPILOG: Final = (
    "A registry is named by --registry, SELECTROUTE_REGISTRY, or `registry` in "
    "~/.config/selectroute/config.toml: a database, sqlite:///PATH or postgresql+psycopg://USER@HOST/DB, or "
    "a service, http://HOST:PORT, whose token is in SELECTROUTE_TOKEN.\n\n"
    "Exit codes: 0 success; 1 no match, or a failure; 2 wrong usage; 3 not there; 4 in the way (a name that "
    "is taken, a stale revision, another job); 5 an invalid selector; 130 interrupted."
)
"""What the help of `selectroute` ends with."""
