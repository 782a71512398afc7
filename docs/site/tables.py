"""Tables of the reference, each made of what the code itself reads."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from textwrap import dedent, fill
from types import ModuleType, SimpleNamespace
from typing import Any, Final, cast

from prometheus_client.metrics import MetricWrapperBase

from selectroute.arrays import tables
from selectroute.clauses import analysis
from selectroute.clauses.analysis import check
from selectroute.cli.commands.selector import dialect_rows
from selectroute.cli.settings import Settings
from selectroute.index import snapshot_files
from selectroute.job_options import JobOptions, Option, options_of
from selectroute.kafka.config import SETTINGS as KAFKA_SETTINGS
from selectroute.queues.errors import REASONS
from selectroute.registry.log import tables as registry_tables
from selectroute.selector.dialect import DIALECTS
from selectroute.selector.errors import KINDS
from selectroute.service.http.problems import PROBLEMS
from selectroute.service.limits import ServiceLimits
from selectroute.service.metrics import Metrics
from selectroute.spark import folder
from selectroute.spark.partitions import keys
from selectroute.spark.stream.metrics import StreamMetrics


def dialects() -> str:
    """Return every field of the dialects, in words."""
    head = ("", *(f"`{name}`" for name in DIALECTS))
    return table(head, ((row.title, *row.cells.values()) for row in dialect_rows()))


def kinds() -> str:
    """Return every kind of invalid selector, with an example and a hint."""
    rows = (
        (f"`{name}`", cell(one.sentence), _code(one.example), one.dialect, cell(one.hint or ""))
        for name, one in KINDS.items()
    )
    return table(("kind", "what is wrong", "for example", "in", "hint"), rows)


def warnings() -> str:
    """Return every kind of warning of a selector: an example, what is said of it, and what to do."""
    rows = []
    for kind, (example, remedy) in _WARNED.items():
        (found,) = (one for one in check(example).warnings if one.kind == kind)
        rows.append((f"`{kind}`", _code(example), cell(found.sentence), remedy))
    return table(("kind", "for example", "what is said", "what to do"), rows)


_WARNED: Final = {
    analysis.ALWAYS_FALSE: ("JMSPriority > 9", "the subscription gets nothing: mend the selector"),
    analysis.ALWAYS_TRUE: ("1 = 1", "leave the selector away, if all messages are wanted"),
    analysis.CONTRADICTORY: ("color = 'red' AND color = 'blue'", "write OR, or IN"),
    analysis.IMPOSSIBLE: ("color = 'red' OR JMSPriority > 9", "mend the condition, or leave it away"),
    analysis.NOT_INDEXABLE: (
        "weight > 5",
        "a few such selectors are harmless; if there are many, add an equality that their messages have in "
        "common, such as `JMSType = 'car'`: see "
        "[Which key a clause gets](../explanation/how-matching-works.md#which-key-a-clause-gets)",
    ),
    analysis.COMPARES_PROPERTIES: ("color = red", "quote the string, if one is meant"),
    analysis.SUBTRACTS_PROPERTIES: ("order-id = 5", "give the property a name without a hyphen"),
    analysis.FOREIGN_NAME: ("AMQPriority > 5", "write the name that JMS has"),
    analysis.DATE_ARITHMETIC: ("day = 2026-11-26", "quote the date"),
}
"""Example of a selector for each kind of warning, and a remedy."""


def reasons() -> str:
    """Return every reason code that queues use."""
    return table(("code", "name"), ((str(code), f"`MQRC_{name}`") for code, name in sorted(REASONS.items())))


def problems() -> str:
    """Return every type of problem of the service."""
    rows = ((f"`{name}`", str(row.status), row.title, str(row.mqrc or "")) for name, row in PROBLEMS.items())
    return table(("type", "status", "title", "MQRC"), rows)


def limits() -> str:
    """Return every limit of the service, with its default."""
    texts = attribute_texts(ServiceLimits)
    rows = (
        (f"`{name}`", _number(field.default), cell(texts.get(name, "")))
        for name, field in ServiceLimits.model_fields.items()
    )
    return table(("setting", "default", ""), rows)


def settings() -> str:
    """Return the settings of the commands."""
    texts = attribute_texts(Settings)
    rows = (
        (f"`{name}`", "" if field.default is None else f"`{field.default}`", cell(texts.get(name, "")))
        for name, field in Settings.model_fields.items()
    )
    return table(("setting", "default", ""), rows)


def job_options() -> str:
    """Return the options of a job in Python, with their flags."""
    rows = (
        (
            f"`{option.name}`",
            f"`--{option.flag}`",
            option.shown_default or ("" if option.default in (None, ()) else f"`{option.default}`"),
            ", ".join(f"`{choice}`" for choice in option.choices) or _range(option),
            cell(option.help),
        )
        for option in options_of(JobOptions).values()
    )
    return table(("option", "flag", "default", "values", ""), rows)


def _range(option: Option) -> str:
    return "{:,} to {:,}".format(*option.range) if option.range else ""


def kafka_settings() -> str:
    """Return the names of the settings of Kafka's clients."""
    return fill(", ".join(f"`{name}`" for name in KAFKA_SETTINGS) + ".", 118, break_on_hyphens=False)


def formats() -> str:
    """Return the number of each format on disk."""
    rows = [
        ("snapshot folder", str(snapshot_files.FORMAT), "`manifest-<revision>.json`"),
        ("registry", str(registry_tables.FORMAT), "the setting `format` of its database"),
        ("partitions of a snapshot", str(keys.FORMAT), "their manifest"),
        ("output folder", str(folder.FORMAT), "`_job.json`"),
    ]
    return table(("format", "number", "is in"), rows)


def job_metrics() -> str:
    """Return the metrics of a job."""
    return _metrics(one for one in vars(StreamMetrics()).values() if isinstance(one, MetricWrapperBase))


def service_metrics() -> str:
    """Return the metrics of a service; those that are read at each scrape have no object of their own."""
    snapshot = type("Snapshot", (), {"__len__": lambda _: 0, "scanned": {"": 0}, "nbytes": 0})()
    state = SimpleNamespace(revision=0, lag_seconds=0.0, snapshot=snapshot)
    metrics = Metrics(cast(Any, SimpleNamespace(is_publisher=True, state=lambda: state)), lambda: 0)
    own = [one for one in vars(metrics).values() if isinstance(one, MetricWrapperBase)]
    names = {one._name for one in own}
    read = [one for one in metrics.registry.collect() if one.name not in names]
    rows = [
        (f"`{one.name}{_labels(one.samples[0].labels)}`", one.type, one.documentation)
        for one in read
        if one.samples
    ]
    return _metrics(own, rows)


def drawing() -> str:
    """Return the drawing of a snapshot's arrays, from their module."""
    text = inspect.getdoc(tables) or ""
    found = re.search(r"::\n\n((?: {4}.*\n|\n)+)", text)
    assert found, "the module draws its arrays"
    return f"```text\n{dedent(found[1]).strip()}\n```"


def attribute_texts(of: type | ModuleType) -> dict[str, str]:
    """Return the texts below the attributes of a class or module, by their names."""
    body: list[ast.stmt] = ast.parse(dedent(inspect.getsource(of))).body
    if isinstance(body[0], ast.ClassDef):
        body = body[0].body
    texts = {}
    for one, below in pairwise(body):
        target = one.target if isinstance(one, ast.AnnAssign) else None
        if isinstance(one, ast.Assign):
            target = one.targets[0]  # type: ignore[assignment]
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            texts[target.id] = inspect.cleandoc(text.value)
    return texts


def _metrics(found: Iterable[MetricWrapperBase], rows: Iterable[tuple[str, ...]] = ()) -> str:
    own: list[tuple[str, ...]] = [
        (
            f"`{one._name}{'_total' if one._type == 'counter' else ''}{_labels(one._labelnames)}`",
            one._type or "",
            one._documentation,
        )
        for one in found
    ]
    return table(("metric", "type", ""), [*own, *rows])


def _labels(names: Iterable[str]) -> str:
    listed = ",".join(names)
    return f"{{{listed}}}" if listed else ""


def _number(value: object) -> str:
    return "none" if value is None else f"{value:,}"


def _code(text: str) -> str:
    shown = text.encode("ascii", "backslashreplace").decode() if not text.isprintable() else text
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def cell(text: str) -> str:
    """Return a text as it stands in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table as Markdown."""
    return "\n".join(_lines(head, rows))


def _lines(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
