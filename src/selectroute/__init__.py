"""selectroute: route every message to every subscription whose topic filter and selector it satisfies.

The stages, one folder each: ``selector`` (text → checked expression), ``clauses`` (expression → clauses),
``topics`` (filters → the same clauses), ``index`` (clauses → index → snapshot), ``match`` (snapshot × Arrow
columns → matches), ``queues`` (delivered messages, got by id or selector), ``spark`` (the same as columns and
streams of Spark).

Importing the package loads nothing; each name loads what it needs when it is first used. The selector
language needs the standard library only, `Index`, `Snapshot` and `publish` need NumPy and Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selectroute.clauses.analysis import Analysis, check
    from selectroute.index.build import build_snapshot
    from selectroute.index.delta import Add, Remove, Replace
    from selectroute.index.errors import BuildError, SnapshotError, SnapshotNotFoundError
    from selectroute.index.file_format import publish
    from selectroute.index.index import Index
    from selectroute.index.publisher import Publisher
    from selectroute.index.snapshot import Snapshot
    from selectroute.match.columns import ColumnTypeError
    from selectroute.match.match import Matches, Warmed, warm
    from selectroute.match.missing import MissingColumnError
    from selectroute.queues.errors import MQError
    from selectroute.queues.memory_queue import MemoryQueue
    from selectroute.queues.message import Descriptor
    from selectroute.queues.options import MatchOptions
    from selectroute.queues.sql_queue import SqlQueue
    from selectroute.registry.changes import Operation
    from selectroute.registry.model import Subscription, SubscriptionSpec
    from selectroute.registry.registry import Registry
    from selectroute.selector import (
        DIALECTS,
        Byte,
        Double,
        Float,
        Int,
        InvalidSelectorError,
        Limits,
        Long,
        Message,
        MessageError,
        PropertyNameError,
        Selector,
        SelectRouteError,
        Short,
        Truth,
        check_property_names,
    )

__version__ = "0.1.0"

_LATER = {
    "Add": "selectroute.index.delta",
    "Analysis": "selectroute.clauses.analysis",
    "BuildError": "selectroute.index.errors",
    "Byte": "selectroute.selector",
    "ColumnTypeError": "selectroute.match.columns",
    "DIALECTS": "selectroute.selector",
    "Descriptor": "selectroute.queues.message",
    "Double": "selectroute.selector",
    "Float": "selectroute.selector",
    "Index": "selectroute.index.index",
    "Int": "selectroute.selector",
    "InvalidSelectorError": "selectroute.selector",
    "Limits": "selectroute.selector",
    "Long": "selectroute.selector",
    "MQError": "selectroute.queues.errors",
    "MatchOptions": "selectroute.queues.options",
    "Matches": "selectroute.match.match",
    "MemoryQueue": "selectroute.queues.memory_queue",
    "Message": "selectroute.selector",
    "MessageError": "selectroute.selector",
    "MissingColumnError": "selectroute.match.missing",
    "Operation": "selectroute.registry.changes",
    "PropertyNameError": "selectroute.selector",
    "Publisher": "selectroute.index.publisher",
    "Registry": "selectroute.registry.registry",
    "Remove": "selectroute.index.delta",
    "Replace": "selectroute.index.delta",
    "SelectRouteError": "selectroute.selector",
    "Selector": "selectroute.selector",
    "Short": "selectroute.selector",
    "Snapshot": "selectroute.index.snapshot",
    "SnapshotError": "selectroute.index.errors",
    "SnapshotNotFoundError": "selectroute.index.errors",
    "SqlQueue": "selectroute.queues.sql_queue",
    "Subscription": "selectroute.registry.model",
    "SubscriptionSpec": "selectroute.registry.model",
    "Truth": "selectroute.selector",
    "Warmed": "selectroute.match.match",
    "build_snapshot": "selectroute.index.build",
    "check": "selectroute.clauses.analysis",
    "check_property_names": "selectroute.selector",
    "publish": "selectroute.index.file_format",
    "warm": "selectroute.match.match",
}

__all__ = [
    "DIALECTS",
    "Add",
    "Analysis",
    "BuildError",
    "Byte",
    "ColumnTypeError",
    "Descriptor",
    "Double",
    "Float",
    "Index",
    "Int",
    "InvalidSelectorError",
    "Limits",
    "Long",
    "MQError",
    "MatchOptions",
    "Matches",
    "MemoryQueue",
    "Message",
    "MessageError",
    "MissingColumnError",
    "Operation",
    "PropertyNameError",
    "Publisher",
    "Registry",
    "Remove",
    "Replace",
    "SelectRouteError",
    "Selector",
    "Short",
    "Snapshot",
    "SnapshotError",
    "SnapshotNotFoundError",
    "SqlQueue",
    "Subscription",
    "SubscriptionSpec",
    "Truth",
    "Warmed",
    "build_snapshot",
    "check",
    "check_property_names",
    "publish",
    "warm",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        value = globals()[name] = getattr(import_module(_LATER[name]), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
