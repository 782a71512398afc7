"""Problem documents: the body of an error response (RFC 9457), and the problem of each error of lower layers.

Each type of problem is one row of `PROBLEMS`; a raise site names the row and gives the detail. A caller's
input is not repeated, except the part of a selector that its error shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from selectroute.index.errors import InvalidSpecError
from selectroute.queues import errors as queues
from selectroute.queues.errors import (
    MQRC_MSG_TOO_BIG_FOR_Q,
    MQRC_NOT_AUTHORIZED,
    MQRC_OBJECT_ALREADY_EXISTS,
    MQRC_Q_FULL,
    MQRC_Q_MGR_NAME_ERROR,
    MQRC_Q_NOT_EMPTY,
    MQRC_UNKNOWN_OBJECT_NAME,
)
from selectroute.queues.rest.lookup import RestError
from selectroute.registry import errors as registry
from selectroute.registry.model import time_text
from selectroute.selector.errors import LIMIT_KINDS, InvalidSelectorError, SelectRouteError
from selectroute.selector.message import MessageError
from selectroute.selector.names import PropertyNameError
from selectroute.selector.sentences import counted
from selectroute.service.logs import log
from selectroute.store.errors import ReplacedError
from selectroute.topics.filter import InvalidTopicFilterError

MEDIA_TYPE = "application/problem+json"
IBM_MEDIA_TYPE: Final = "application/json"
TYPE = "urn:selectroute:problem:"

IBM: Final = "/ibmmq/"
"""Beginning of the paths of IBM MQ's REST API, whose errors have IBM's form."""

_BY_DEFAULT: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
"""Types that `_data` converts instead of the encoder."""

MQRC_NO_SUBSCRIPTION = 2428
MQRC_SUB_ALREADY_EXISTS = 2432
MQRC_SUB_NAME_ERROR = 2440


class ProblemType(NamedTuple):
    """Type of problem: its status code, its title, its MQ reason code, if any, and the id of IBM's error."""

    status: int
    title: str
    mqrc: int | None = None
    ibm_id: str = "MQWB0303E"


PROBLEMS: Mapping[str, ProblemType] = MappingProxyType(
    {
        "invalid-request": ProblemType(400, "The request cannot be read"),
        "unauthorised": ProblemType(401, "A token is needed", None, "MQWB0104E"),
        "forbidden": ProblemType(403, "The token does not permit this", MQRC_NOT_AUTHORIZED, "MQWB0103E"),
        "not-found": ProblemType(404, "Not found"),
        "queue-not-found": ProblemType(404, "There is no such queue", MQRC_UNKNOWN_OBJECT_NAME, "MQWB0300E"),
        "queue-manager-not-found": ProblemType(
            404, "There is no such queue manager", MQRC_Q_MGR_NAME_ERROR, "MQWB0009E"
        ),
        "subscription-not-found": ProblemType(404, "There is no such subscription", MQRC_NO_SUBSCRIPTION),
        "job-not-found": ProblemType(404, "There is no such job"),
        "method-not-allowed": ProblemType(405, "The path does not support this method"),
        "timed-out": ProblemType(408, "The request was not received in time"),
        "name-taken": ProblemType(409, "Another subscription has this name", MQRC_SUB_ALREADY_EXISTS),
        "id-taken": ProblemType(409, "Another subscription has this id", MQRC_SUB_ALREADY_EXISTS),
        "queue-taken": ProblemType(409, "There is a queue of this name already", MQRC_OBJECT_ALREADY_EXISTS),
        "queue-not-empty": ProblemType(409, "The queue has messages", MQRC_Q_NOT_EMPTY),
        "count-changed": ProblemType(409, "Another number of messages matches than was expected"),
        "queue-full": ProblemType(409, "The queue is full", MQRC_Q_FULL),
        "letters-changed": ProblemType(409, "The number of dead letters has changed"),
        "stale-revision": ProblemType(412, "The subscription was changed in the meantime"),
        "too-large": ProblemType(413, "The request is too large"),
        "message-too-large": ProblemType(413, "The message is too large", MQRC_MSG_TOO_BIG_FOR_Q),
        "unsupported-media-type": ProblemType(
            415, "The body has an unsupported media type", None, "MQWB0306E"
        ),
        "misdirected": ProblemType(421, "This service answers only its own machine"),
        "invalid-selector": ProblemType(422, "The selector is invalid"),
        "too-costly": ProblemType(422, "The selectors are too costly"),
        "invalid-topic-filter": ProblemType(422, "The topic filter is invalid"),
        "invalid-subscription": ProblemType(422, "The subscription is invalid"),
        "invalid-queue": ProblemType(422, "The queue is invalid"),
        "invalid-message": ProblemType(422, "The message is invalid"),
        "invalid-body": ProblemType(422, "The request has an invalid part"),
        "idempotency-conflict": ProblemType(422, "The Idempotency-Key belongs to another request"),
        "precondition-required": ProblemType(428, "If-Match is needed"),
        "too-many-requests": ProblemType(429, "Too many requests"),
        "header-too-large": ProblemType(431, "The header fields are too large"),
        "internal": ProblemType(500, "Internal error of the service", None, "MQWB0000E"),
        "damaged": ProblemType(500, "The store is damaged", None, "MQWB0000E"),
        "read-only": ProblemType(503, "The database cannot be written"),
        "unavailable": ProblemType(503, "The service is not ready"),
    }
)
"""All types of problems, by the last part of the type."""

_IBM_HEADER_ID: Final = "MQWB0302E"
_IBM_CHARSET_ID: Final = "MQWB0305E"
"""Ids of IBM's messages of an invalid header, and of a character set."""

RETRY_SECONDS = 5
"""Retry-After while the database is unavailable or read-only."""

_AGAIN_SECONDS = 1
"""Retry-After while too many requests wait."""


class RequestFault(BaseModel):
    """Fault in a request: its position (`pointer` into the body, RFC 6901; offset and length in characters,
    line and column from 1, within the text), the expected input, and the MQ reason code.
    """

    pointer: str
    reason: str
    kind: str | None = None
    offset: int | None = None
    length: int | None = None
    line: int | None = None
    column: int | None = None
    expected: list[str] | None = None
    hint: str | None = None
    suggestion: str | None = None
    mqrc: int | None = None


class Problem(BaseModel):
    """Problem document of a refused request (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[RequestFault] = []
    mqrc: int | None = None
    expected: int | None = None
    """Revision in If-Match, for stale-revision; number of messages that were seen, for count-changed."""
    found: int | None = None
    """Current revision, or number of messages."""


class MqError(BaseModel):
    """Error in IBM's form. `problem` is an extension: the problem document that other paths answer with."""

    type: str = "rest"
    msgId: str
    message: str
    explanation: str
    action: str
    completionCode: int
    reasonCode: int
    problem: Problem


class MqErrors(BaseModel):
    """Body of an error response of IBM MQ's REST API."""

    error: list[MqError]


class ProblemError(SelectRouteError):
    """Refused request: a row of `PROBLEMS`, with the detail of this request.

    `place` names a header or parameter at fault, or is a pointer into the body.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        place: str | None = None,
        faults: Sequence[RequestFault] = (),
        headers: Mapping[str, str] | None = None,
        **extensions: int | None,
    ) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail
        self.status = PROBLEMS[kind].status
        self.faults = [RequestFault(pointer=place, reason=detail)] if place is not None else list(faults)
        self.headers = dict(headers or {})
        self.extensions = extensions

    def __str__(self) -> str:
        return self.detail

    def within(self, pointer: str) -> ProblemError:
        """Return the problem with its pointers prefixed by `pointer`, a part of the body."""
        if pointer:
            whole = self.faults or [RequestFault(pointer="", reason=self.detail)]
            self.faults = [fault.model_copy(update={"pointer": pointer + fault.pointer}) for fault in whole]
        return self

    def response(self, request_id: str, path: str = "") -> Response:
        """Return the response to a request for `path`: a problem document and its headers, or an error in
        IBM's form.
        """
        row = PROBLEMS[self.kind]
        problem = Problem(
            type=TYPE + self.kind,
            title=row.title,
            status=self.status,
            detail=self.detail,
            instance=f"urn:uuid:{request_id}",
            errors=self.faults,
            **{"mqrc": row.mqrc, **self.extensions},
        )
        headers = dict(self.headers)
        if self.status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers.setdefault("Retry-After", str(RETRY_SECONDS))
        if path.startswith(IBM):
            ibm = MqErrors(error=[self._ibm(problem)])
            return Response(as_json(ibm.model_dump(exclude_none=True)), self.status, headers, IBM_MEDIA_TYPE)
        body = as_json(problem.model_dump(exclude_none=True))
        return Response(body, self.status, headers, MEDIA_TYPE)

    def _ibm(self, problem: Problem) -> MqError:
        place = self.faults[0].pointer if self.faults else ""
        id = PROBLEMS[self.kind].ibm_id
        if place.lower().startswith("ibm-mq-"):
            id = _IBM_HEADER_ID
        elif place == "Content-Type":
            id = _IBM_CHARSET_ID
        is_later = self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or "Retry-After" in self.headers
        return MqError(
            msgId=id,
            message=f"{id}: {self.detail}",
            explanation=f"{problem.title}.",
            action="Send the request again later." if is_later else "Correct the request and send it again.",
            completionCode=2 if problem.mqrc else 0,
            reasonCode=problem.mqrc or 0,
            problem=problem,
        )


def check_waiting(count: int, limit: int, what: str) -> None:
    """Raise a problem, 429, if `limit` requests wait for ``what`` already."""
    if count >= limit:
        raise ProblemError(
            "too-many-requests",
            f"{limit:,} requests wait for {what} already",
            headers={"Retry-After": str(_AGAIN_SECONDS)},
        )


def as_json(data: Any) -> bytes:
    """Encode data as JSON in UTF-8, or with ASCII escapes if a client sent a lone surrogate."""
    try:
        return orjson.dumps(data, default=_data, option=_BY_DEFAULT)
    except TypeError:  # also of an integer of more than 64 bits
        return json.dumps(data, default=_data, allow_nan=False, separators=(",", ":")).encode()


def _data(value: Any) -> Any:
    """Return a dataclass, or a time, as plain data."""
    if isinstance(value, datetime):
        return time_text(value)
    return value.to_json() if hasattr(value, "to_json") else members_of(value)


def members_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by their names."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


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
            fault = RequestFault(pointer=within + error.pointer, reason=error.sentence, mqrc=mqrc)
            return ProblemError("invalid-subscription", str(error), faults=[fault])
        case MessageError():
            pointer = within + message_pointer(error.place)
            return ProblemError("invalid-message", str(error), place=pointer)
        case registry.ForbiddenError():
            return ProblemError("forbidden", error.sentence, place=within + error.pointer)
        case registry.OperationError():
            return problem_of(error.cause, f"/operations/{error.index}")
        case registry.ImportLineError():
            problem, *others = (problem_of(line.cause, f"/{line.line - 1}") for line in error.problems)
            more = f"; and {counted(len(others), 'line')} more, see errors" if others else ""
            problem.detail = f"line {error.line:,}: {problem.detail}{more}"
            problem.faults += [fault for other in others for fault in other.faults]
            return problem
        case registry.StaleRevisionError():
            place = within or None
            expected, present = error.expected, error.actual
            return ProblemError("stale-revision", str(error), place=place, expected=expected, found=present)
        case registry.BusyError() | ReplacedError():  # without the location of the database
            return ProblemError("unavailable", str(error), place=within or None)
        case queues.MQError():
            kind = _MQ_KINDS.get(error.reason, "invalid-request")
            detail = _MQ_CONSTANT.get(kind) or error.detail or str(error)
            return ProblemError(kind, detail, mqrc=error.reason)
        case queues.CountChangedError():
            return ProblemError(
                "count-changed", str(error), expected=error.expected, found=error.actual, place="/expected"
            )
        case queues.ScanLimitError():
            return ProblemError(
                "too-costly", str(error), place=f"{within}/selector" if within else "selector"
            )
        case RestError():
            fault = RequestFault(pointer=error.place, reason=error.sentence, mqrc=error.reason)
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
"""Problem types by reason code: the codes of `PROBLEMS` and more; any other is an invalid request."""


def selector_fault(error: InvalidSelectorError, within: str = "") -> RequestFault:
    """Return the fault of a selector: error, position and suggestion."""
    data = error.to_dict()
    return RequestFault(
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
