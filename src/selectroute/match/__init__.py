"""Stage 4: a snapshot and a batch of messages as Arrow columns become matches, without a Python object per
message.

``columns`` turns each Arrow column into a *lane*: a type tag and 64 bits for every row (``batch`` finds the
column by its name, ``fields`` makes the lanes of fields that have several names, ``mixed`` makes columns of
single messages). ``encode`` looks the
values up among the snapshot's constants: one code for each row and attribute. ``kernel`` then probes the
access keys with these codes, and collects for every message the runs of entries that match; a second pass
copies their ordinals into one allocation. ``program`` judges what keys and sorted ranges do not decide. The
three are compiled by numba and know no Python object.
"""

from selectroute.match.columns import ColumnTypeError
from selectroute.match.match import Counters, Matches, Warmed, warm, warm_up
from selectroute.match.missing import MissingColumnError
from selectroute.match.mixed import MIXED, from_messages

__all__ = [
    "MIXED",
    "ColumnTypeError",
    "Counters",
    "Matches",
    "MissingColumnError",
    "Warmed",
    "from_messages",
    "warm",
    "warm_up",
]
