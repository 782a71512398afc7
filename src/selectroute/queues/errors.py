"""Errors of queues, as in IBM MQ: a completion code and a reason code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from selectroute.selector.errors import SelectRouteError
from selectroute.selector.sentences import counted

MQCC_FAILED: Final = 2

MQRC_BACKED_OUT: Final = 2003
MQRC_BUFFER_ERROR: Final = 2004
MQRC_EXPIRY_ERROR: Final = 2013
MQRC_HCONN_ERROR: Final = 2018
MQRC_HOBJ_ERROR: Final = 2019
MQRC_MSG_TOO_BIG_FOR_Q: Final = 2030
MQRC_NO_MSG_AVAILABLE: Final = 2033
MQRC_NO_MSG_UNDER_CURSOR: Final = 2034
MQRC_NOT_AUTHORIZED: Final = 2035
MQRC_PERSISTENCE_ERROR: Final = 2047
MQRC_PRIORITY_ERROR: Final = 2050
MQRC_Q_FULL: Final = 2053
MQRC_Q_NOT_EMPTY: Final = 2055
MQRC_Q_MGR_NAME_ERROR: Final = 2058
MQRC_UNKNOWN_OBJECT_NAME: Final = 2085
MQRC_WAIT_INTERVAL_ERROR: Final = 2090
MQRC_OBJECT_ALREADY_EXISTS: Final = 2100
MQRC_OBJECT_NAME_ERROR: Final = 2152
MQRC_MSG_ID_ERROR: Final = 2206
MQRC_CORREL_ID_ERROR: Final = 2207
MQRC_UNIT_OF_WORK_NOT_STARTED: Final = 2232
MQRC_MATCH_OPTIONS_ERROR: Final = 2247
MQRC_MSG_FLAGS_ERROR: Final = 2249
MQRC_MSG_SEQ_NUMBER_ERROR: Final = 2250
MQRC_OFFSET_ERROR: Final = 2251
MQRC_GROUP_ID_ERROR: Final = 2258
MQRC_INCONSISTENT_BROWSE: Final = 2259
MQRC_MSG_TOKEN_ERROR: Final = 2331
MQRC_PROPERTY_NAME_ERROR: Final = 2442
MQRC_SELECTOR_SYNTAX_ERROR: Final = 2459
MQRC_PROPERTY_TYPE_ERROR: Final = 2473
MQRC_PROPERTIES_TOO_BIG: Final = 2478
MQRC_MIXED_CONTENT_NOT_ALLOWED: Final = 2498
MQRC_SELECTION_STRING_ERROR: Final = 2519
MQRC_SELECTION_NOT_AVAILABLE: Final = 2551

REASONS: Final[Mapping[int, str]] = MappingProxyType(
    {code: name.removeprefix("MQRC_") for name, code in list(globals().items()) if name.startswith("MQRC_")}
)
"""IBM's names of the reason codes, without ``MQRC_``."""


class MQError(SelectRouteError):
    """Failed call on a queue; nothing was changed.

    ``comp`` is the completion code (2, failed) and ``reason`` one of `REASONS`; ``detail`` is a sentence
    about this call, or None. The text is that of IBM MQ's own clients, and the detail:

    >>> print(MQError(2, 2033))
    MQI Error. Comp 2, Reason 2033: FAILED: MQRC_NO_MSG_AVAILABLE
    >>> print(MQError(2, 2050, "must be 0 to 9"))
    MQI Error. Comp 2, Reason 2050: FAILED: MQRC_PRIORITY_ERROR: must be 0 to 9
    """

    def __init__(self, comp: int, reason: int, detail: str | None = None) -> None:
        super().__init__(comp, reason, detail)
        self.comp = comp
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        name = REASONS.get(self.reason, "UNEXPECTED_ERROR")
        detail = "" if self.detail is None else f": {self.detail}"
        return f"MQI Error. Comp {self.comp}, Reason {self.reason}: FAILED: MQRC_{name}{detail}"

    def __reduce__(self) -> tuple[Any, ...]:
        return MQError, (self.comp, self.reason, self.detail)


class CountChangedError(SelectRouteError):
    """Other number of matching messages than expected; nothing was changed.

    Args:
        expected: the number that the caller has seen.
        actual: the number that match now.
    """

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(expected, actual)
        self.expected = expected
        self.actual = actual

    def __str__(self) -> str:
        match = "message matches" if self.actual == 1 else "messages match"
        return f"{self.actual:,} {match} now, not {self.expected:,}: count again"


class ScanLimitError(SelectRouteError):
    """Lookup that has compared messages with its selector for too long; nothing was changed."""

    def __str__(self) -> str:
        return "comparing messages with the selector took too long: add an id, or an equality, to it"


def failed(reason: int, detail: str | None = None) -> MQError:
    """Return the error of a call that failed for a reason."""
    return MQError(MQCC_FAILED, reason, detail)


def queue_full(limit: int, name: str | None = None) -> MQError:
    """Return the error of a put on a queue that holds as many messages as it may."""
    queue = "the queue" if name is None else f"the queue {name!r}"
    return failed(MQRC_Q_FULL, f"{queue} holds {counted(limit, 'message')}, its maximum depth")
