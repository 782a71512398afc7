"""Mapping of errors of the lower layers to problems for a caller."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from selectroute.index.errors import InvalidSpecError
from selectroute.queues import errors as queues
from selectroute.queues.rest.lookup import RestError
from selectroute.registry import errors as registry
from selectroute.selector.errors import LIMIT_KINDS, InvalidSelectorError, SelectRouteError
from selectroute.selector.explain.sentences import counted
from selectroute.selector.message import MessageError
from selectroute.selector.names import PropertyNameError
from selectroute.service.http.problems import MQRC_SUB_NAME_ERROR, PROBLEMS, Fault, ProblemError
from selectroute.service.logs import log
from selectroute.store.errors import ReplacedError
from selectroute.topics.filter import InvalidTopicFilterError


def logged_problem(error: SelectRouteError, request_id: str) -> ProblemError:
    """Return the problem of an error; log the details of errors that are hidden from the caller."""
    problem = problem_of(error)
    if not isinstance(error, ProblemError) and problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log().warning("request refused", request=request_id, reason=str(error))
    return problem


def problem_of(error: SelectRouteError, within: str = "") -> ProblemError:
    """Return the problem of an error. `within` is the pointer to the part of the body with the error."""
    match error:
        case ProblemError():
            return error.within(within)
        case InvalidSelectorError():
            detail = f"{error.sentence} (dialect {error.dialect})"
            fault = selector_fault(error, within)
            return ProblemError("invalid-selector", detail, faults=[fault], mqrc=error.reason)
        case InvalidSpecError():
            mqrc = MQRC_SUB_NAME_ERROR if error.pointer in ("/name", "/id") else None
            fault = Fault(pointer=within + error.pointer, reason=error.sentence, mqrc=mqrc)
            return ProblemError("invalid-subscription", str(error), faults=[fault])
        case MessageError():
            pointer = within + message_pointer(error.place)
            return ProblemError("invalid-message", str(error), place=pointer)
        case registry.ForbiddenError():
            return ProblemError("forbidden", error.sentence, place=within + error.pointer)
        case registry.OperationError():
            return problem_of(error.cause, f"/operations/{error.index}")
        case registry.ImportLineError():
            problem, *others = (problem_of(one.cause, f"/{one.line - 1}") for one in error.problems)
            more = f"; and {counted(len(others), 'line')} more, see errors" if others else ""
            problem.detail = f"line {error.line:,}: {problem.detail}{more}"
            problem.faults += [fault for other in others for fault in other.faults]
            return problem
        case registry.StaleRevisionError():
            place = within or None
            expected, found = error.expected, error.found
            return ProblemError("stale-revision", str(error), place=place, expected=expected, found=found)
        case registry.BusyError() | ReplacedError():  # without the location of the database
            return ProblemError("unavailable", str(error), place=within or None)
        case queues.MQError():
            kind = _MQ_KINDS.get(error.reason, "invalid-request")
            detail = _MQ_CONSTANT.get(kind) or error.detail or str(error)
            return ProblemError(kind, detail, mqrc=error.reason)
        case queues.CountChangedError():
            return ProblemError(
                "count-changed", str(error), expected=error.expected, found=error.found, place="/expected"
            )
        case queues.ScanLimitError():
            return ProblemError(
                "too-costly", str(error), place=f"{within}/selector" if within else "selector"
            )
        case RestError():
            fault = Fault(pointer=error.place, reason=error.sentence, mqrc=error.reason)
            return ProblemError("invalid-request", str(error), faults=[fault], mqrc=error.reason)
        case _:
            rows = (row for type_, row in _KINDS.items() if isinstance(error, type_))
            kind, place = next(rows, ("internal", ""))
            detail = _CONSTANT.get(kind) or str(error)
            return ProblemError(kind, detail, place=within + place or None)


NO_SUBSCRIPTION = "there is no subscription with this id"
"""Also the detail for a subscription that the caller may not see: its existence is not revealed."""

INTERNAL = "the request failed; the service's log has the reason under this instance"

_CONSTANT = {
    "internal": INTERNAL,
    "subscription-not-found": NO_SUBSCRIPTION,
    # The database's messages name hosts, ports, users and rows, which a caller must not learn.
    "unavailable": "the database cannot be reached; the service's log has the reason under this instance",
    "damaged": "the database is damaged; the service's log says where, under this instance",
}

_MQ_CONSTANT = {
    "internal": INTERNAL,
    "queue-not-found": "there is no queue with this name",
    "queue-taken": "there is a queue with this name already",
}

_KINDS: Final[Mapping[type[SelectRouteError], tuple[str, str]]] = {
    InvalidTopicFilterError: ("invalid-topic-filter", "/topic"),
    PropertyNameError: ("invalid-message", "/properties"),
    registry.NameTakenError: ("name-taken", "/name"),
    registry.IdTakenError: ("id-taken", "/id"),
    registry.NotFoundError: ("subscription-not-found", ""),
    registry.IdempotencyConflictError: ("idempotency-conflict", ""),
    registry.TooLargeError: ("too-large", ""),
    registry.TooCostlyError: ("too-costly", ""),
    registry.AuthError: ("unauthorised", ""),
    registry.ReadOnlyError: ("read-only", ""),
    registry.UnavailableError: ("unavailable", ""),
    registry.DamagedError: ("damaged", ""),
}
"""Problem types of errors, and the member of a subscription or message that is at fault, if it is one."""


_MQ_KINDS: Final[Mapping[int, str]] = {
    **{row.mqrc: kind for kind, row in PROBLEMS.items() if row.mqrc is not None},
    queues.MQRC_BACKED_OUT: "unavailable",
    queues.MQRC_HOBJ_ERROR: "unavailable",  # closed: deleted, or the service stops
    queues.MQRC_OBJECT_NAME_ERROR: "invalid-queue",
    queues.MQRC_PROPERTY_NAME_ERROR: "invalid-message",
    queues.MQRC_PROPERTY_TYPE_ERROR: "invalid-message",
    queues.MQRC_PROPERTIES_TOO_BIG: "invalid-message",
    queues.MQRC_MIXED_CONTENT_NOT_ALLOWED: "invalid-message",
}
"""Problem types of reason codes, in addition to those that a type has; all others are an invalid request."""


def selector_fault(error: InvalidSelectorError, within: str = "") -> Fault:
    """Return the fault of a selector: error, position and suggestion."""
    data = error.to_dict()
    return Fault(
        pointer=f"{within}/selector",
        reason=error.sentence,
        kind=error.kind,
        **{name: data[name] for name in ("offset", "length", "line", "column", "expected", "hint")},
        suggestion=None if error.kind in LIMIT_KINDS else data["suggestion"],
        mqrc=error.reason,
    )


def message_pointer(place: str) -> str:
    """Return the pointer of a `MessageError`'s place: ``properties.a.b`` is the property ``a.b``.

    >>> message_pointer("properties.a.b")
    '/properties/a.b'
    """
    if place == "message":
        return ""
    member, _, name = place.partition(".")
    return f"/{escaped(member)}" + (f"/{escaped(name)}" if name else "")


def escaped(name: str) -> str:
    """Escape one step of a pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
