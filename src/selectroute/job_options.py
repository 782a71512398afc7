"""Options, each declared once as a field with its type, default, range or choices, and help; a job's options.

`Job` inherits `JobOptions` and checks them. The flags of ``selectroute stream run`` and ``rerun``, their
environment variables and the table in the reference are made from the same fields. Flags that several other
commands share are declared in the same way, see `selectroute.cli.options`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

from selectroute.index.destination import GROUPINGS

INPUT, KAFKA, SUBSCRIPTIONS, OUTPUT, WATCHING, RUNNING = PANELS = (
    "Input: files",
    "Input and output: Kafka",
    "Subscriptions",
    "Output",
    "Watching",
    "Running",
)
"""Panels of the help of a job's options, in their order."""

POLICIES: Final = ("keep", "drop", "fail")
MISSING_DESTINATIONS: Final = ("dead-letter", "fail")
TABLE_FORMATS: Final = ("parquet", "delta")

LARGEST: Final = 2**31 - 1
REQUIRED: Any = MISSING
"""Default of an option that must be given."""

_MOST_HOURS: Final = 24 * 365 * 10
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Declaration of an option.

    Attributes:
        name, kind, default: of its field.
        help: its text under ``Attributes:`` in the docstring of its class.
        panel: panel of the help that shows it; "" for an option that is not one of a job.
        metavar: noun for its value.
        flag: its name on the command line, without dashes; by default the name of the field.
        range: smallest and largest number.
        choices: all texts that it can be.
        shown_default: the default in words, if it depends on other options.
        rerun: whether `stream rerun` takes it, too.
        complete: completion of its value in a shell.
    """

    name: str
    kind: Any
    default: Any
    help: str
    panel: str
    metavar: str | None
    flag: str
    range: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    shown_default: str = ""
    rerun: bool = True
    complete: Callable[[str], list[str]] | None = None

    @property
    def repeats(self) -> bool:
        """True if it can be given more than once."""
        return bool(self.default == ())

    @property
    def variable(self) -> str | None:
        """Name of its environment variable, which only an option of a job has."""
        return "SELECTROUTE_" + self.flag.upper().replace("-", "_") if self.panel else None


def option(default: T, panel: str = "", metavar: str | None = None, **more: Any) -> T:
    """Return a field that declares an option, with these attributes of `Option`. A URL, which may have a
    password, is not in the repr of the object.
    """
    declared = {"panel": panel, "metavar": metavar, **more}
    return field(default=default, repr=metavar != "URL", metadata=declared)


@cache
def options_of(kind: type) -> Mapping[str, Option]:
    """Return the options that the fields of a dataclass declare, by name, in the order of their panels."""
    docstrings = "\n".join(inspect.cleandoc(base.__doc__ or "") for base in kind.__mro__)
    texts = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(docstrings)}
    kinds = get_type_hints(kind)
    options = [
        Option(
            name=declared.name,
            kind=kinds[declared.name],
            default=declared.default,
            help=texts.get(declared.name, ""),
            **{"flag": declared.name.replace("_", "-"), **declared.metadata},
        )
        for declared in fields(kind)
    ]
    options.sort(key=lambda option: ("", *PANELS).index(option.panel))
    return {option.name: option for option in options}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Options of a job that are numbers, texts and choices.

    Attributes:
        file_format: Format of the files; auto: by file extension.
        max_files: The most files of a batch.
        max_message_bytes: A longer line or record is a dead letter.
        unrouted: Messages without a matching subscription.
        unrouted_topics: The same for topics, such as 'audit/#=fail'; the first matching filter applies.
        queues: Database of the queues that are destinations.
        missing_destinations: For missing queues and topics: make deliveries dead letters, or refuse to start.
        destination_wait: Wait this long for a full queue or refusing topic; then its deliveries become dead
            letters. inf: wait without end.
        kafka_grouping: Records of a topic: one for each delivery, or one for each message, whose headers list
            the subscriptions.
        table_format: Format of deliveries, unrouted messages and dead letters: folders of Parquet files, one
            a batch, or Delta tables. A job keeps its format.
        compact_every: Number of batches whose small files in a Delta table are merged, behind the stream; 0:
            never.
        table_retention_hours: Hours for which a Delta table keeps merged files, for readers of earlier
            versions.
        name: Name of the stream in the registry's reports and the console.
        sample_messages: Messages of each second that go to the registry's sample of recent messages, without
            their bodies, for dry runs of changes; 0: none.
    """

    file_format: str = option("auto", INPUT, flag="format", choices=("auto", "parquet", "json"))
    max_files: int = option(16, INPUT, "N", flag="max-files-per-trigger", range=(1, LARGEST))
    max_message_bytes: int = option(4 << 20, INPUT, "N", range=(1, LARGEST))
    unrouted: str = option("keep", OUTPUT, choices=POLICIES)
    unrouted_topics: tuple[str, ...] = option((), OUTPUT, "FILTER=POLICY", flag="unrouted-topic")
    queues: str | None = option(None, OUTPUT, "URL")
    missing_destinations: str = option("dead-letter", OUTPUT, choices=MISSING_DESTINATIONS, rerun=False)
    destination_wait: float = option(30.0, OUTPUT, "S", range=(0, float("inf")), rerun=False)
    kafka_grouping: str = option("delivery", OUTPUT, choices=GROUPINGS, rerun=False)
    table_format: str | None = option(
        None, OUTPUT, choices=TABLE_FORMATS, shown_default="parquet, and in remote storage delta"
    )
    compact_every: int = option(50, OUTPUT, "N", range=(0, LARGEST), rerun=False)
    table_retention_hours: int = option(
        24, OUTPUT, "HOURS", flag="table-retention", range=(1, _MOST_HOURS), rerun=False
    )
    name: str | None = option(None, WATCHING, "NAME", shown_default="the output folder's", rerun=False)
    sample_messages: int = option(0, WATCHING, "N", range=(0, 200), rerun=False)
