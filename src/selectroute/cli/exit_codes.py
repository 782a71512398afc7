"""Exit codes of the commands; 0 is success."""

from __future__ import annotations

from typing import Final

FAILURE: Final = 1
"""No match, or any failure without another code."""

USAGE: Final = 2
"""Invalid command line."""

NOT_FOUND: Final = 3
"""Missing file, subscription, queue or snapshot."""

CONFLICT: Final = 4
"""Conflict: a name that is taken, a stale revision, another job."""

INVALID_SELECTOR: Final = 5
"""Invalid selector."""

EPILOG: Final = (
    "A registry is named by --registry, SELECTROUTE_REGISTRY, or `registry` in "
    "~/.config/selectroute/config.toml: a database, sqlite:///PATH or postgresql+psycopg://USER@HOST/DB, or "
    "a service, http://HOST:PORT, whose token is in SELECTROUTE_TOKEN.\n\n"
    "Exit codes: 0 success; 1 no match, or a failure; 2 wrong usage; 3 not found; 4 conflict (a name that "
    "is taken, a stale revision, another job); 5 invalid selector; 130 interrupted."
)
"""End of the help of `selectroute`."""
