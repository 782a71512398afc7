"""Match options: the fields of a message that a get compares (IBM's MQMO_*)."""

from __future__ import annotations

from enum import IntFlag
from typing import Final

from selectroute.queues.errors import MQRC_MATCH_OPTIONS_ERROR, failed


class MatchOptions(IntFlag):
    """Flags of the fields by which a get or browse finds a message; IBM's integers are accepted as well.

    A field without its option is ignored. All others must agree; an id of 24 zero bytes (MQMI_NONE,
    MQCI_NONE, MQGI_NONE) agrees with any.
    """

    NONE = 0
    MSG_ID = 1
    CORREL_ID = 2
    GROUP_ID = 4
    MSG_SEQ_NUMBER = 8
    OFFSET = 16
    MSG_TOKEN = 32


MSG_ID: Final = int(MatchOptions.MSG_ID)
CORREL_ID: Final = int(MatchOptions.CORREL_ID)
GROUP_ID: Final = int(MatchOptions.GROUP_ID)
MSG_SEQ_NUMBER: Final = int(MatchOptions.MSG_SEQ_NUMBER)
OFFSET: Final = int(MatchOptions.OFFSET)
MSG_TOKEN: Final = int(MatchOptions.MSG_TOKEN)
# The flags as plain integers: each operator of an IntFlag takes most of a microsecond.

DEFAULT_MATCH: Final = MatchOptions.MSG_ID | MatchOptions.CORREL_ID
"""IBM's initial value of MatchOptions."""

_DEFAULT: Final = int(DEFAULT_MATCH)
_ALL: Final = 63


def mask_of(match: object) -> int:
    """Return match options as a plain integer, 0 to 63. Raises MQError 2247 for any other bit."""
    if match is DEFAULT_MATCH:
        return _DEFAULT
    if type(match) is int and 0 <= match <= _ALL:
        return match
    if not isinstance(match, int) or isinstance(match, bool):
        raise failed(MQRC_MATCH_OPTIONS_ERROR, f"expected an integer, not a {type(match).__name__}")
    mask = int(match)
    if mask & ~_ALL:
        raise failed(MQRC_MATCH_OPTIONS_ERROR, f"the match options have bits outside {_ALL}")
    return mask
