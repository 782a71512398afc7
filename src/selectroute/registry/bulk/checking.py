"""Check of the lines of an import, block by block: a function of lines, for any process.

Selectors are parsed once for each shape. The result has a line of text for each subscription, which the stage
keeps and `Staged.of` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from selectroute.index.compile.build import check_subscriptions, paused_collector
from selectroute.index.errors import (
    MAX_REPORTED,
    BuildError,
    DuplicateSubscriptionError,
    InvalidSpecError,
    LineProblem,
)
from selectroute.index.specification import (
    SubscriptionSpec,
    SubscriptionStatus,
    check_id,
    parse_line,
    parsed_subscription,
    wrong_seltype,
)
from selectroute.registry.authorization import Permission
from selectroute.registry.errors import IdTakenError, ImportLineError, TooLargeError
from selectroute.registry.log.rows import topic_key
from selectroute.registry.model import new_id, time_text
from selectroute.registry.specification import Checks, Counts
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import MAX_LINE, Limits

ACTIVE: Final = SubscriptionStatus.ACTIVE.value
"""Status of a line that gives none."""

Line = tuple[int, str | bytes]
"""Line of an import, and its number."""


class CheckedLines(NamedTuple):
    """Checked lines of an import, as columns and as text for the stage.

    For each line its number in the import, the number of literals in its clauses, and the length of its
    selector and topic filter in characters, int64[lines]. The text is UTF-8, a line each.
    """

    numbers: Counts
    literals: Counts
    lengths: Counts
    text: bytes


class Staged(NamedTuple):
    """Staged line: its number in the import, its status if given, and its subscription."""

    number: int
    status: str | None
    id: str
    name: str
    topic_key: str | None
    dialect: str
    labels: Mapping[str, str]
    body: str

    @classmethod
    def of(cls, line: str) -> Staged:
        """Invert `_texts`."""
        number, status, id, name, topic, dialect, labels, body = line[:-1].split("\t", 7)
        key = topic[1:] if topic else None
        label_values = _labels(labels) if labels else {}
        return cls(int(number), status or None, id, name, key, dialect, label_values, body)


class _Line(NamedTuple):
    number: int
    id: str
    spec: SubscriptionSpec
    status: SubscriptionStatus | None
    """None if the line gives none."""


def checked_lines(block: Sequence[Line], limits: Limits, by: Permission) -> CheckedLines:
    """Check lines, and the caller's permission for each; blank lines are left out.

    Raises `ImportLineError` with all invalid lines, or the first `MAX_REPORTED`.
    """
    lines: list[_Line] = []
    wrong: list[LineProblem] = []
    with paused_collector():
        for number, line in block:
            try:
                if line.strip():
                    lines.append(_read(number, line, by))
            except SelectRouteError as error:
                wrong.append(LineProblem(number, error))
                if len(wrong) == MAX_REPORTED:
                    break
        try:
            types, literals = _types(lines, limits)
        except ImportLineError as error:
            wrong.extend(error.problems)
        if wrong:
            raise ImportLineError.of(wrong)
        now = time_text(datetime.now(UTC))
        text = "".join(_texts(lines, types, now))
        lengths = [len(line.spec.selector) + len(line.spec.topic or "") for line in lines]
        return CheckedLines(
            np.array([line.number for line in lines], np.int64),
            literals,
            np.array(lengths, np.int64),
            text.encode(),
        )


def _read(number: int, line: str | bytes, by: Permission) -> _Line:
    if len(line) > MAX_LINE:
        raise TooLargeError(f"the line has {len(line):,} characters, at most {MAX_LINE:,}")
    id, spec, status = parsed_subscription(parse_line(line))
    by.check_stored(spec)  # on the parsed line, which is what will be stored
    return _Line(number, new_id() if id is None else check_id(id), spec, status)


def _types(lines: list[_Line], limits: Limits) -> tuple[list[Any], Counts]:
    """Check the selectors of lines; return the type of each, and the number of literals in its clauses.

    Raises `ImportLineError` with all invalid lines.
    """
    names = ("selector", "topic", "dialect", "seltype")
    columns = {name: pa.array([getattr(line.spec, name) for line in lines], pa.string()) for name in names}
    try:
        checked = check_subscriptions(
            pa.table({"id": pa.array([line.id for line in lines], pa.string()), **columns}), limits
        )
    except BuildError as error:
        raise ImportLineError.of(
            LineProblem(lines[row].number, _cause(lines[row], cause, limits))
            for row, cause in error.causes.items()
        ) from error
    types: list[Any] = checked.seltypes.to_pylist()
    wrong = [
        LineProblem(line.number, InvalidSpecError("/seltype", wrong_seltype(seltype)))
        for line, seltype in zip(lines, types, strict=True)
        if line.spec.seltype not in (None, seltype)
    ]
    if wrong:
        raise ImportLineError.of(wrong)
    return types, checked.literals


def _cause(line: _Line, cause: SelectRouteError, limits: Limits) -> SelectRouteError:
    """Return the error of a line as `Registry.register` would raise it."""
    if isinstance(cause, DuplicateSubscriptionError):
        return IdTakenError(f"the id {line.id!r} is used twice")
    try:
        Checks(limits).checked(line.spec)
    except SelectRouteError as error:
        return error
    return cause


def _texts(lines: Iterable[_Line], types: Iterable[str], now: str) -> Iterator[str]:
    """Yield the text of each line for the stage.

    Ids, names and keys of topics have no control characters. An empty topic differs from none.
    """
    known: dict[tuple[object, ...], tuple[str, str, dict[str, Any]]] = {}
    for (number, id, spec, status), seltype in zip(lines, types, strict=True):
        common = spec.dialect, seltype, spec.destination, status, *spec.labels.items()
        if common not in known:
            known[common] = _common(spec, seltype, status, now)
        status_text, labels, rest = known[common]
        name = id if spec.name is None else spec.name
        topic = "" if spec.topic is None else f"={topic_key(spec.topic)}"
        first = {"id": id, "name": name, "topic": spec.topic, "selector": spec.selector}
        body = orjson.dumps(first | rest).decode()
        yield f"{number}\t{status_text}\t{id}\t{name}\t{topic}\t{spec.dialect}\t{labels}\t{body}\n"


def _common(
    spec: SubscriptionSpec, seltype: str, status: SubscriptionStatus | None, now: str
) -> tuple[str, str, dict[str, Any]]:
    """Return what many lines have in common: their status, labels, and the other members of `body_of`."""
    status_text = "" if status is None else status.value
    labels = dict(sorted(spec.labels.items()))
    rest = {
        "dialect": spec.dialect,
        "seltype": seltype,
        "destination": spec.destination.to_json(),
        "status": status_text or ACTIVE,
        "labels": labels,
        "created": now,
        "modified": now,
    }
    return status_text, orjson.dumps(labels).decode() if labels else "", rest


@lru_cache(maxsize=1_024)  # many subscriptions have the same ones
def _labels(text: str) -> Mapping[str, str]:
    labels: dict[str, str] = json.loads(text)
    return MappingProxyType(labels)
