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

TYPE_CHECKING = False  # as in `typing`, which takes long to import: until then Ctrl-C prints a traceback
if TYPE_CHECKING:
    from selectroute.clauses.analysis import Analysis, check
    from selectroute.client import SubscriptionRegistry
    from selectroute.client.queues import RemoteQueue
    from selectroute.client.registry import RemoteRegistry, connect
    from selectroute.index.changes import Add, Remove, Replace
    from selectroute.index.errors import BuildError, SnapshotError, SnapshotNotFoundError
    from selectroute.index.index import Index
    from selectroute.index.publisher import Publisher
    from selectroute.index.snapshot import Snapshot, build_snapshot
    from selectroute.index.snapshot_files import publish
    from selectroute.index.specification import SubscriptionSpec
    from selectroute.index.warm import Warmed, warm
    from selectroute.match.columns.columns import ColumnTypeError
    from selectroute.match.columns.missing import MissingColumnError
    from selectroute.match.match import Matches
    from selectroute.queues.errors import MQError
    from selectroute.queues.lookup import MatchOptions
    from selectroute.queues.memory import MemoryQueue
    from selectroute.queues.message.message import Descriptor
    from selectroute.queues.settings import QueueSettings
    from selectroute.queues.sql.queue import SqlQueue, SqlQueues
    from selectroute.registry.model import Operation, Subscription
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
    "clauses.analysis": "Analysis check",
    "client": "SubscriptionRegistry",
    "client.queues": "RemoteQueue",
    "client.registry": "RemoteRegistry connect",
    "index.changes": "Add Remove Replace",
    "index.errors": "BuildError SnapshotError SnapshotNotFoundError",
    "index.snapshot_files": "publish",
    "index.index": "Index",
    "index.publisher": "Publisher",
    "index.snapshot": "Snapshot build_snapshot",
    "index.specification": "SubscriptionSpec",
    "index.warm": "Warmed warm",
    "match.columns.columns": "ColumnTypeError",
    "match.columns.missing": "MissingColumnError",
    "match.match": "Matches",
    "queues.errors": "MQError",
    "queues.lookup": "MatchOptions",
    "queues.memory": "MemoryQueue",
    "queues.message.message": "Descriptor",
    "queues.settings": "QueueSettings",
    "queues.sql.queue": "SqlQueue SqlQueues",
    "registry.model": "Operation Subscription",
    "registry.registry": "Registry",
    "selector": "Byte DIALECTS Double Float Int InvalidSelectorError Limits Long "
    "Message MessageError PropertyNameError SelectRouteError Selector Short Truth check_property_names",
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
    "QueueSettings",
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
    "SqlQueues",
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
        from selectroute.extras import look_up

        return look_up(__name__, _LATER, name)


def __dir__() -> list[str]:
    return sorted(__all__)
