"""From what the parts below raise to what a caller is told."""

from __future__ import annotations

from selectroute.registry import errors as registry
from selectroute.selector.errors import LIMIT_KINDS, InvalidSelectorError, SelectRouteError
from selectroute.selector.message import MessageError
from selectroute.selector.names import PropertyNameError
from selectroute.service.problems import MQRC_SUB_NAME_ERROR, Fault, ProblemError
from selectroute.topics.filter import InvalidTopicFilterError


def refused(error: SelectRouteError, within: str = "") -> ProblemError:
    """The problem that an error is. `within` is the pointer to the part of the body that was read."""
    match error:
        case ProblemError():
            return error.within(within)
        case InvalidSelectorError():
            detail = f"{error.sentence} (dialect {error.dialect})"
            return ProblemError("invalid-selector", detail, faults=[selector_fault(error, within)])
        case InvalidTopicFilterError():
            return ProblemError("invalid-topic-filter", str(error), place=f"{within}/topic")
        case registry.InvalidSpecError():
            mqrc = MQRC_SUB_NAME_ERROR if error.pointer in ("/name", "/id") else None
            fault = Fault(pointer=within + error.pointer, reason=error.sentence, mqrc=mqrc)
            return ProblemError("invalid-subscription", str(error), faults=[fault])
        case MessageError():
            pointer = within + message_pointer(error.place)
            return ProblemError("invalid-message", str(error), place=pointer)
        case PropertyNameError():
            return ProblemError("invalid-message", str(error), place=f"{within}/properties")
        case registry.NameTakenError():
            return ProblemError("name-taken", str(error), place=f"{within}/name")
        case registry.IdTakenError():
            return ProblemError("id-taken", str(error), place=f"{within}/id")
        case registry.OperationError():
            return refused(error.cause, f"/operations/{error.index}")
        case registry.ImportLineError():
            problem = refused(error.cause, f"/{error.line - 1}")
            problem.detail = f"line {error.line:,}: {problem.detail}"
            return problem
        case registry.StaleRevisionError():
            place = within or None
            expected, found = error.expected, error.found
            return ProblemError("stale-revision", str(error), place=place, expected=expected, found=found)
        case _:
            kind = next((kind for type_, kind in _KINDS.items() if isinstance(error, type_)), "internal")
            detail = _CONSTANT.get(kind) or str(error)
            return ProblemError(kind, detail, place=within or None)


NO_SUBSCRIPTION = "there is no subscription of this id that the caller may see"
"""Also said of one that is there and hidden: an id is no secret's oracle."""

INTERNAL = "the request could not be done; the service's log says why, under this instance"

_CONSTANT = {"internal": INTERNAL, "subscription-not-found": NO_SUBSCRIPTION}

_KINDS: dict[type[SelectRouteError], str] = {
    registry.NotFoundError: "subscription-not-found",
    registry.IdempotencyConflictError: "idempotency-conflict",
    registry.TooLargeError: "too-large",
    registry.AuthError: "unauthorised",
    registry.ReadOnlyError: "read-only",
    registry.UnavailableError: "unavailable",
    registry.DamagedError: "damaged",
}


def selector_fault(error: InvalidSelectorError, within: str = "") -> Fault:
    """What is wrong with a selector, where, and how to put it right."""
    data = error.to_dict()
    return Fault(
        pointer=f"{within}/selector",
        reason=error.sentence,
        kind=error.kind,
        offset=data["offset"],
        length=data["length"],
        line=data["line"],
        column=data["column"],
        expected=data["expected"],
        hint=data["hint"],
        suggestion=None if error.kind in LIMIT_KINDS else data["suggestion"],
        mqrc=error.reason,
    )


def message_pointer(place: str) -> str:
    """The pointer to a place that a `MessageError` names: ``properties.a.b`` is the property ``a.b``.

    >>> message_pointer("properties.a.b")
    '/properties/a.b'
    """
    if place == "message":
        return ""
    member, _, name = place.partition(".")
    return f"/{escaped(member)}" + (f"/{escaped(name)}" if name else "")


def escaped(name: str) -> str:
    """One step of a pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
