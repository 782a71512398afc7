"""Problem documents of a service (RFC 9457), translated into the errors that the registry itself raises."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from os.path import commonprefix
from typing import Any, Final

from selectroute.client.http import Response
from selectroute.index.errors import InvalidSpecError, LineProblem
from selectroute.index.specification import SubscriptionSpec
from selectroute.queues.errors import CountChangedError
from selectroute.registry.errors import (
    AuthError,
    DamagedError,
    IdempotencyConflictError,
    IdTakenError,
    ImportLineError,
    NameTakenError,
    NotFoundError,
    OperationError,
    ReadOnlyError,
    RegistryError,
    StaleRevisionError,
    TooLargeError,
    UnavailableError,
)
from selectroute.selector.errors import KINDS, Fix, InvalidSelectorError, SelectRouteError
from selectroute.selector.sentences import printable
from selectroute.selector.syntax.source import Span
from selectroute.topics.filter import InvalidTopicFilterError

TIMEOUT_SECONDS: Final = 30.0
"""Longest time until a response."""

BULK_SECONDS: Final = 3600.0
"""Longest time of an import after its last line is sent, and of an export until its first line comes."""

MAX_WAIT_SECONDS: Final = 30.0
"""Longest time that a service lets a request wait for a change, a batch or a message."""

MOST_CHANGES: Final = 1_000
"""Changes in one response at most."""

Asked = Callable[[int], SubscriptionSpec | None]
"""Function from the index of an operation or line to the requested specification, if still known."""

_TYPE: Final = "urn:selectroute:problem:"
_PLACE: Final = re.compile(r"(?:/operations)?/(\d{1,9})(/.*|)", re.DOTALL)

_SHOWN: Final = 2_000
"""Characters shown of a text of the service at most."""

_BY_KIND: Final[Mapping[str, Callable[[str], SelectRouteError]]] = {
    "unauthorised": AuthError,
    "forbidden": AuthError,
    "subscription-not-found": NotFoundError,
    "not-found": NotFoundError,
    "name-taken": NameTakenError,
    "id-taken": IdTakenError,
    "idempotency-conflict": IdempotencyConflictError,
    "too-large": TooLargeError,
    "invalid-topic-filter": InvalidTopicFilterError,
    "read-only": ReadOnlyError,
    "unavailable": UnavailableError,
    "damaged": DamagedError,
}


def refusal(
    answer: Response,
    url: str,
    *,
    id: str = "",
    spec: SubscriptionSpec | None = None,
    several: type[OperationError] | type[ImportLineError] | None = None,
    asked: Asked = lambda _: None,
) -> SelectRouteError:
    """Return the error that an error response stands for.

    Args:
        answer: the response.
        url: the service, for a response that is not a problem document.
        id: the subscription of the request.
        spec: the requested specification, so that an invalid selector can be shown.
        several: the class that wraps the error of one of many operations or lines; `asked` finds its
            specification.
    """
    problem = document_of(answer)
    if problem is None:
        return RegistryError(f"{url} answers with {answer.status}, not as a registry does: check the URL")
    kind = str(problem.get("type", "")).removeprefix(_TYPE)
    if kind == "subscription-not-found" and id:
        return NotFoundError(f"there is no subscription {id!r}")
    expected, present = problem.get("expected"), problem.get("found")
    if kind == "count-changed" and isinstance(expected, int) and isinstance(present, int):
        return CountChangedError(expected, present)
    detail = _shown(problem.get("detail") or problem.get("title") or kind)
    faults = problem.get("errors")
    fault = faults[0] if isinstance(faults, list) and faults and isinstance(faults[0], dict) else {}
    pointer = str(fault.get("pointer", ""))
    if pointer and not pointer.startswith("/"):
        pointer = f"/{pointer}"  # a parameter or a header by its name
    place = _PLACE.fullmatch(pointer) if several is not None else None
    if several is None or place is None:
        return _stale(problem, detail, id) or _error(kind, detail, pointer, fault, spec)
    index = int(place[1])
    reason = _shown(fault.get("reason", detail))
    cause = _stale(problem, reason, id) or _error(kind, reason, place[2], fault, asked(index))
    if several is OperationError:
        return OperationError(index, cause)
    return ImportLineError(index + 1, cause, _other_lines(faults, index, asked))


def _other_lines(faults: Any, first: int, asked: Asked) -> Iterator[LineProblem]:
    """Yield the invalid lines after the first. Only errors of selectors keep their kind."""
    for fault in faults[1:]:
        place = _PLACE.fullmatch(str(fault.get("pointer", ""))) if isinstance(fault, dict) else None
        if place is None or int(place[1]) == first:
            continue
        index, reason = int(place[1]), _shown(fault.get("reason"))
        kind = "invalid-selector" if fault.get("kind") is not None else "invalid-subscription"
        yield LineProblem(index + 1, _error(kind, reason, place[2], fault, asked(index)))


def _stale(problem: Mapping[str, Any], detail: str, id: str) -> RegistryError | None:
    """Return the error of a concurrently changed subscription, if the problem is one."""
    if problem.get("type") != f"{_TYPE}stale-revision":
        return None
    expected, present = problem.get("expected"), problem.get("found")
    if isinstance(expected, int) and isinstance(present, int):
        stale = StaleRevisionError(id, expected, present)
        stale.args = stale.args if id else (detail,)  # one of several operations: the service knows which
        return stale
    return NotFoundError(f"there is no subscription {id!r}")  # If-Match fails for a missing subscription


def _error(
    kind: str, detail: str, pointer: str, fault: Mapping[str, Any], spec: SubscriptionSpec | None
) -> SelectRouteError:
    if kind == "invalid-selector":
        error = None if spec is None else _invalid_selector(fault, spec)
        return error or InvalidSpecError(pointer, _sentence(detail, fault))
    if kind in _BY_KIND:
        return _BY_KIND[kind](detail)
    if kind in ("invalid-subscription", "invalid-message", "invalid-body", "invalid-request"):
        return InvalidSpecError(pointer, _sentence(detail, fault))
    return RegistryError(detail)


def _invalid_selector(fault: Mapping[str, Any], spec: SubscriptionSpec) -> InvalidSelectorError | None:
    """Rebuild the error of an invalid selector; None if the document lacks fields for it."""
    kind, offset, length = fault.get("kind"), fault.get("offset"), fault.get("length")
    text, size = spec.selector, len(spec.selector)
    if not isinstance(kind, str) or kind not in KINDS:
        return None
    if not isinstance(offset, int) or not isinstance(length, int):
        return None
    if not 0 <= offset <= offset + length <= size:
        return None
    expected = fault.get("expected")
    hint, suggestion, reason = fault.get("hint"), fault.get("suggestion"), fault.get("mqrc")
    return InvalidSelectorError(
        kind,
        text,
        Span(offset, offset + length),
        tuple(map(_shown, expected)) if isinstance(expected, list) else (),
        hint=_shown(hint) if isinstance(hint, str) else None,
        fix=_fix(text, suggestion) if isinstance(suggestion, str) else None,
        dialect=spec.dialect,
        reason=reason if isinstance(reason, int) else None,
    )


def _fix(text: str, suggestion: str) -> Fix:
    """Return the single edit that turns the text into the suggestion."""
    start = len(commonprefix([text, suggestion]))  # noqa: RUF071  of characters is what is meant
    end = len(commonprefix([text[start:][::-1], suggestion[start:][::-1]]))  # noqa: RUF071
    return Fix(Span(start, len(text) - end), suggestion[start : len(suggestion) - end])


def document_of(answer: Response) -> dict[str, Any] | None:
    """Return the problem document of a response, also that within an error in IBM's form; None without."""
    try:
        problem = json.loads(answer.body)
        if isinstance(problem, dict) and "error" in problem:
            problem = problem["error"][0]["problem"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    is_ours = isinstance(problem, dict) and str(problem.get("type", "")).startswith(_TYPE)
    return problem if is_ours else None


def _sentence(detail: str, fault: Mapping[str, Any]) -> str:
    return _shown(fault.get("reason") or detail)


def _shown(text: object) -> str:
    return printable(str(text), _SHOWN)
