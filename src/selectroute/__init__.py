"""Subscription routing: each message to every subscription whose topic filter and selector match it.

The stages, one folder each: ``selector`` (text → checked expression), ``clauses`` (expression → clauses),
``topics`` (filters → the same clauses), ``index`` (clauses → index → snapshot), ``match`` (snapshot × Arrow
columns → matches), ``queues`` (delivered messages, got by id or selector), ``spark`` (routing of DataFrames
and streams).

Importing the package loads nothing; each name is imported when it is first looked up. A name whose extra is
not installed says on its first use what to install. The selector language needs only the standard library;
`Index`, `Snapshot` and `publish` need NumPy and Arrow.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, which takes long to import: until then Ctrl-C prints a traceback
if TYPE_CHECKING:
    from selectroute.clauses.analysis import Analysis, check
    from selectroute.client.queues import RemoteQueue
    from selectroute.client.registry import RemoteRegistry, connect
    from selectroute.index.change.delta import Add, Remove, Replace
    from selectroute.index.errors import BuildError, SnapshotError, SnapshotNotFoundError
    from selectroute.index.folder.format import publish
    from selectroute.index.index import Index
    from selectroute.index.publisher import Publisher
    from selectroute.index.snapshot import Snapshot, build_snapshot
    from selectroute.index.specification import SubscriptionSpec
    from selectroute.index.warm import Warmed, warm
    from selectroute.match.columns.columns import ColumnTypeError
    from selectroute.match.columns.missing import MissingColumnError
    from selectroute.match.match import Matches
    from selectroute.queues.errors import MQError
    from selectroute.queues.lookup.match_options import MatchOptions
    from selectroute.queues.memory import MemoryQueue
    from selectroute.queues.message.message import Descriptor
    from selectroute.queues.sql.queue import SqlQueue
    from selectroute.registry.changes import Operation
    from selectroute.registry.model import Subscription
    from selectroute.registry.protocol import SubscriptionRegistry
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
    "Add": "selectroute.index.change.delta",
    "Analysis": "selectroute.clauses.analysis",
    "BuildError": "selectroute.index.errors",
    "Byte": "selectroute.selector",
    "ColumnTypeError": "selectroute.match.columns.columns",
    "DIALECTS": "selectroute.selector",
    "Descriptor": "selectroute.queues.message.message",
    "Double": "selectroute.selector",
    "Float": "selectroute.selector",
    "Index": "selectroute.index.index",
    "Int": "selectroute.selector",
    "InvalidSelectorError": "selectroute.selector",
    "Limits": "selectroute.selector",
    "Long": "selectroute.selector",
    "MQError": "selectroute.queues.errors",
    "MatchOptions": "selectroute.queues.lookup.match_options",
    "Matches": "selectroute.match.match",
    "MemoryQueue": "selectroute.queues.memory",
    "Message": "selectroute.selector",
    "MessageError": "selectroute.selector",
    "MissingColumnError": "selectroute.match.columns.missing",
    "Operation": "selectroute.registry.changes",
    "PropertyNameError": "selectroute.selector",
    "Publisher": "selectroute.index.publisher",
    "Registry": "selectroute.registry.registry",
    "RemoteQueue": "selectroute.client.queues",
    "RemoteRegistry": "selectroute.client.registry",
    "Remove": "selectroute.index.change.delta",
    "Replace": "selectroute.index.change.delta",
    "SelectRouteError": "selectroute.selector",
    "Selector": "selectroute.selector",
    "Short": "selectroute.selector",
    "Snapshot": "selectroute.index.snapshot",
    "SnapshotError": "selectroute.index.errors",
    "SnapshotNotFoundError": "selectroute.index.errors",
    "SqlQueue": "selectroute.queues.sql.queue",
    "Subscription": "selectroute.registry.model",
    "SubscriptionRegistry": "selectroute.registry.protocol",
    "SubscriptionSpec": "selectroute.index.specification",
    "Truth": "selectroute.selector",
    "Warmed": "selectroute.index.warm",
    "build_snapshot": "selectroute.index.snapshot",
    "check": "selectroute.clauses.analysis",
    "check_property_names": "selectroute.selector",
    "connect": "selectroute.client.registry",
    "publish": "selectroute.index.folder.format",
    "warm": "selectroute.index.warm",
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
    "RemoteQueue",
    "RemoteRegistry",
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
    "SubscriptionRegistry",
    "SubscriptionSpec",
    "Truth",
    "Warmed",
    "build_snapshot",
    "check",
    "check_property_names",
    "connect",
    "publish",
    "warm",
]


if not TYPE_CHECKING:  # a type checker would take any name

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from selectroute.extras import MissingExtraError, absent, importing

        try:
            with importing():
                module = import_module(_LATER[name])
        except MissingExtraError as error:
            return absent(name, error)
        value = globals()[name] = getattr(module, name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
