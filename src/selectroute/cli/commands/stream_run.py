"""``selectroute stream run | rerun``: runs the streaming job, or repeats its batches."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from selectroute.cli.connect import is_service
from selectroute.cli.exit_codes import CONFLICT, FAILURE, NOT_FOUND, USAGE
from selectroute.cli.stopping import stopping
from selectroute.extras import MissingExtraError, importing
from selectroute.selector import SelectRouteError
from selectroute.selector.explain.sentences import counted
from selectroute.service.stopping import Stop

if TYPE_CHECKING:
    from selectroute.registry.protocol import SubscriptionRegistry
    from selectroute.spark import BatchReport, Job, KafkaInput
    from selectroute.spark.runtime.session import Session

_LONGEST_TRIGGER: Final = 86_400.0
_LARGEST: Final = 2**31 - 1
_MOST_HOURS: Final = 24 * 365 * 10


class Format(StrEnum):
    """Format of message files."""

    auto = "auto"
    parquet = "parquet"
    json = "json"


class Unrouted(StrEnum):
    """Policy for messages without a matching subscription."""

    keep = "keep"
    drop = "drop"
    fail = "fail"


class Missing(StrEnum):
    """Policy for destinations that do not exist."""

    dead_letter = "dead-letter"
    fail = "fail"


class Recreated(StrEnum):
    """Policies for topics that were created again."""

    fail = "fail"
    read = "read"


class KafkaGrouping(StrEnum):
    """Records of Kafka that deliveries become."""

    delivery = "delivery"
    message = "message"


class TableFormat(StrEnum):
    """Format of deliveries, unrouted messages and dead letters."""

    parquet = "parquet"
    delta = "delta"


class MissingSchema(StrEnum):
    """Policy for schemas that are not available."""

    wait = "wait"
    dead_letter = "dead-letter"


class Log(StrEnum):
    """Form of a job's log."""

    text = "text"
    json = "json"


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):
        raise typer.BadParameter("not a number of seconds")
    return seconds


def _number(seconds: float) -> float:
    if math.isnan(seconds):
        raise typer.BadParameter("not a number of seconds")
    return seconds


def _option(name: str, help: str, group: str, metavar: str | None = None, **more: Any) -> Any:
    """Return an option that can also be set by an environment variable."""
    variable = "SELECTROUTE_" + name.upper().replace("-", "_")
    return typer.Option(
        f"--{name}",
        help=help,
        metavar=metavar,
        envvar=variable,
        show_envvar=False,
        rich_help_panel=group,
        **more,
    )


_INPUT, _KAFKA, _SUBSCRIPTIONS, _OUTPUT, _RUNNING, _WATCHING = (
    "Input: files",
    "Input and output: Kafka",
    "Subscriptions",
    "Output",
    "Running",
    "Watching",
)

InputOption = Annotated[
    str | None,
    _option(
        "input",
        "Folder of incoming message files: a path or a URL (s3://, gs://, abfss://, hdfs://).",
        _INPUT,
        "DIR",
        show_default=False,
    ),
]
FormatOption = Annotated[Format, _option("format", "Format of the files; auto: by file extension.", _INPUT)]
MaxFilesOption = Annotated[
    int, _option("max-files-per-trigger", "The most files of a batch.", _INPUT, "N", min=1, max=_LARGEST)
]
MaxBytesOption = Annotated[
    int,
    _option(
        "max-message-bytes",
        "A longer line or record is a dead letter.",
        _INPUT,
        "N",
        min=1,
        max=_LARGEST,
    ),
]
ServersOption = Annotated[
    str,
    _option("kafka-servers", "Kafka to read from and write to.", _KAFKA, "HOST:PORT,…", show_default=False),
]
TopicsOption = Annotated[
    str, _option("kafka-topics", "Topics to read.", _KAFKA, "NAME,…", show_default=False)
]
PatternOption = Annotated[
    str,
    _option("kafka-pattern", "Topics to read, as a regular expression.", _KAFKA, "REGEX", show_default=False),
]
ConfigOption = Annotated[
    str,
    _option(
        "kafka-config",
        "File with settings of Kafka's clients, name=value a line.",
        _KAFKA,
        "FILE",
        show_default=False,
    ),
]
RecreatedOption = Annotated[
    Recreated,
    _option(
        "kafka-recreated",
        "For a topic that was created again under its name, or lost records that were read or sent: fail, or "
        "read the new topic from its beginning, as NAME@2 in the output, and deliver to the new one.",
        _KAFKA,
    ),
]
BindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bind",
        metavar="NAME[:TYPE][=FROM]",
        help="A property; repeatable. Of records, weight:int is the header weight, an int; "
        "price:double=$.order.price a field of the body; customer=@key the key. Of Parquet files, "
        "JMSType=kind is the column kind; at:long=cast a time, date or decimal as a long; "
        "at:long=cast(COLUMN) another column.",
        rich_help_panel=_KAFKA,
        show_default=False,
    ),
]
BindingOption = Annotated[
    str,
    _option(
        "kafka-binding",
        "TOML or JSON file that defines the properties.",
        _KAFKA,
        "FILE",
        show_default=False,
    ),
]
SeparatorOption = Annotated[
    str,
    _option(
        "topic-separator",
        "Separator of topic levels in Kafka's topic names.",
        _KAFKA,
        "CHAR",
        show_default=False,
    ),
]
SchemaRegistryOption = Annotated[
    str,
    _option(
        "schema-registry",
        "Registry of the schemas of Avro, Protobuf and JSON Schema bodies.",
        _KAFKA,
        "URL",
        show_default=False,
    ),
]
SchemaConfigOption = Annotated[
    str,
    _option(
        "schema-registry-config",
        "File with settings of the schema registry's client, name=value a line.",
        _KAFKA,
        "FILE",
        show_default=False,
    ),
]
MissingSchemaOption = Annotated[
    MissingSchema,
    _option(
        "schema-registry-missing",
        "For an unknown schema, or a schema registry that does not answer: wait, or make the records dead "
        "letters.",
        _KAFKA,
    ),
]
StartingOption = Annotated[
    str, _option("starting-offsets", "Start of the first batch: earliest, latest or JSON.", _KAFKA)
]
MaxOffsetsOption = Annotated[
    int,
    _option(
        "max-offsets-per-trigger",
        "The most records a batch; 0: any.",
        _KAFKA,
        "N",
        min=0,
        max=2**63 - 1,
    ),
]
MinPartitionsOption = Annotated[
    int,
    _option(
        "min-partitions",
        "The fewest partitions to read in; 0: Kafka's own.",
        _KAFKA,
        "N",
        min=0,
        max=_LARGEST,
    ),
]
RegistryOption = Annotated[
    str,
    _option(
        "registry",
        "Registry of the subscriptions: a database or a service (its token: SELECTROUTE_TOKEN).",
        _SUBSCRIPTIONS,
        "URL",
        show_default=False,
    ),
]
SnapshotsOption = Annotated[
    str,
    _option(
        "snapshots",
        "Folder of published snapshots: a path or a URL (s3://bucket/dir).",
        _SUBSCRIPTIONS,
        "DIR",
        show_default="the one of the registry's database",
    ),
]
OutputOption = Annotated[
    str, _option("output", "Folder for the outputs, only of this job.", _OUTPUT, "DIR", show_default=False)
]
CheckpointOption = Annotated[
    str | None,
    _option(
        "checkpoint",
        "Spark's checkpoint; belongs to the output.",
        _OUTPUT,
        "DIR",
        show_default="OUTPUT/_checkpoint",
    ),
]
UnroutedOption = Annotated[
    Unrouted, _option("unrouted", "Messages without a matching subscription.", _OUTPUT)
]
UnroutedTopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unrouted-topic",
        metavar="FILTER=POLICY",
        help="The same for topics, such as 'audit/#=fail'; the first matching filter applies.",
        rich_help_panel=_OUTPUT,
        show_default=False,
    ),
]
QueuesOption = Annotated[
    str,
    _option(
        "queues",
        "Database of the queues that are destinations.",
        _OUTPUT,
        "URL",
        show_default=False,
    ),
]
MissingOption = Annotated[
    Missing,
    _option(
        "missing-destinations",
        "For missing queues and topics: make deliveries dead letters, or refuse to start.",
        _OUTPUT,
    ),
]
WaitOption = Annotated[
    float,
    _option(
        "destination-wait",
        "Wait this long for a full queue or refusing topic; then its deliveries become dead letters. "
        "inf: wait without end.",
        _OUTPUT,
        "S",
        min=0,
        callback=_number,
    ),
]
GroupingOption = Annotated[
    KafkaGrouping,
    _option(
        "kafka-grouping",
        "Records of a topic: one for each delivery, or one for each message, whose headers list the "
        "subscriptions.",
        _OUTPUT,
    ),
]
TableFormatOption = Annotated[
    TableFormat | None,
    _option(
        "table-format",
        "Format of deliveries, unrouted messages and dead letters: folders of Parquet files, one a batch, or "
        "Delta tables. A job keeps its format.",
        _OUTPUT,
        show_default="parquet, and in remote storage delta",
    ),
]
CompactOption = Annotated[
    int,
    _option(
        "compact-every",
        "Number of batches whose small files in a Delta table are merged, behind the stream; 0: never.",
        _OUTPUT,
        "N",
        min=0,
        max=_LARGEST,
    ),
]
NameOption = Annotated[
    str,
    _option(
        "name",
        "Name of the stream in the registry's reports and the console.",
        _WATCHING,
        "NAME",
        show_default="the output folder's",
    ),
]
SampleOption = Annotated[
    int,
    _option(
        "sample-messages",
        "Messages of each second that go to the registry's sample of recent messages, without their bodies, "
        "for dry runs of changes; 0: none.",
        _WATCHING,
        "N",
        min=0,
        max=200,
    ),
]
RetentionOption = Annotated[
    int,
    _option(
        "table-retention",
        "Hours for which a Delta table keeps merged files, for readers of earlier versions.",
        _OUTPUT,
        "HOURS",
        min=1,
        max=_MOST_HOURS,
    ),
]
CoresOption = Annotated[
    int,
    _option(
        "cores",
        "Concurrent tasks; 0: all cores of this machine (spark-submit: its own).",
        _RUNNING,
        "N",
        min=0,
        max=65_536,
    ),
]
TriggerOption = Annotated[
    float,
    _option(
        "trigger-seconds",
        "Interval of checks for new messages.",
        _RUNNING,
        "S",
        min=0,
        max=_LONGEST_TRIGGER,
        callback=_finite,
    ),
]
AvailableOption = Annotated[
    bool,
    typer.Option(
        "--available-now",
        help="Route the available messages, then end.",
        envvar="SELECTROUTE_AVAILABLE_NOW",
        show_envvar=False,
        rich_help_panel=_RUNNING,
    ),
]
LogOption = Annotated[
    Log, _option("log", "Format of the log on standard error: text, or a JSON object per event.", _WATCHING)
]
PortOption = Annotated[
    int,
    _option("metrics-port", "Port for Prometheus; 0: none.", _WATCHING, "PORT", min=0, max=65_535),
]
HostOption = Annotated[str, _option("metrics-host", "Address for Prometheus.", _WATCHING, "HOST")]


def run(
    *,
    input: InputOption = None,
    format: FormatOption = Format.auto,
    max_files_per_trigger: MaxFilesOption = 16,
    max_message_bytes: MaxBytesOption = 4 << 20,
    kafka_servers: ServersOption = "",
    kafka_topics: TopicsOption = "",
    kafka_pattern: PatternOption = "",
    bind: BindOption = None,
    kafka_binding: BindingOption = "",
    topic_separator: SeparatorOption = "",
    schema_registry: SchemaRegistryOption = "",
    schema_registry_config: SchemaConfigOption = "",
    schema_registry_missing: MissingSchemaOption = MissingSchema.wait,
    starting_offsets: StartingOption = "earliest",
    max_offsets_per_trigger: MaxOffsetsOption = 0,
    min_partitions: MinPartitionsOption = 0,
    kafka_config: ConfigOption = "",
    kafka_recreated: RecreatedOption = Recreated.fail,
    registry: RegistryOption = "",
    snapshots: SnapshotsOption = "",
    output: OutputOption,
    checkpoint: CheckpointOption = None,
    unrouted: UnroutedOption = Unrouted.keep,
    unrouted_topic: UnroutedTopicOption = None,
    queues: QueuesOption = "",
    missing_destinations: MissingOption = Missing.dead_letter,
    destination_wait: WaitOption = 30.0,
    kafka_grouping: GroupingOption = KafkaGrouping.delivery,
    table_format: TableFormatOption = None,
    compact_every: CompactOption = 50,
    name: NameOption = "",
    sample_messages: SampleOption = 0,
    table_retention: RetentionOption = 24,
    trigger_seconds: TriggerOption = 1.0,
    available_now: AvailableOption = False,
    cores: CoresOption = 0,
    log: LogOption = Log.text,
    metrics_port: PortOption = 0,
    metrics_host: HostOption = "127.0.0.1",
) -> None:
    """Route message files, or records of Kafka, to every matching subscription until stopped (Ctrl-C,
    SIGTERM).

    selectroute stream run --input messages --snapshots snapshots --output out

    selectroute stream run --input messages --registry sqlite:///subscriptions.db --output out

    selectroute stream run --kafka-servers host:9092 --kafka-topics cars --bind weight:int …

    A file must appear complete: write it elsewhere and rename it into the folder. Parquet columns have the
    names of the selectors' identifiers; a JSON line is {"headers": {"JMSType": "car"}, "properties":
    {"weight": 3000}, "topic": "cars/eu"}.

    Subscriptions come from published snapshots (`selectroute index build SUBS.jsonl DIR`), or from a
    registry, published by `selectroute serve`; a new revision is used from the next batch on.

    OUTPUT/deliveries has a row per delivery, OUTPUT/unrouted the messages without a matching subscription,
    OUTPUT/dead-letters messages that could not be read or evaluated and deliveries that a destination
    refused, OUTPUT/accounting.jsonl a line per batch. The first three are folders of Parquet files, or Delta
    tables with --table-format delta. Messages for destinations queue:NAME go to the database of --queues, for
    kafka:TOPIC to --kafka-servers.

    The first Ctrl-C or SIGTERM finishes the current batch and ends with exit code 0, the second ends at once;
    start again to continue. Every option but --bind can also be set in the environment:
    --max-files-per-trigger is SELECTROUTE_MAX_FILES_PER_TRIGGER.
    """
    options = _JobOptions.of(locals())
    how = available_now, trigger_seconds, (metrics_host, metrics_port)
    raise typer.Exit(_run_until_stopped(options, lambda stop: _run(options, stop, *how)))


def rerun(
    *,
    into: Annotated[
        str,
        typer.Option(metavar="DIR", help="New folder for the results.", show_default=False),
    ],
    batches: Annotated[str, typer.Argument(help="A batch number, a range such as 0-99, or all.")] = "all",
    input: InputOption = None,
    format: FormatOption = Format.auto,
    max_files_per_trigger: MaxFilesOption = 16,
    max_message_bytes: MaxBytesOption = 4 << 20,
    kafka_servers: ServersOption = "",
    kafka_topics: TopicsOption = "",
    kafka_pattern: PatternOption = "",
    bind: BindOption = None,
    kafka_binding: BindingOption = "",
    topic_separator: SeparatorOption = "",
    schema_registry: SchemaRegistryOption = "",
    schema_registry_config: SchemaConfigOption = "",
    schema_registry_missing: MissingSchemaOption = MissingSchema.wait,
    starting_offsets: StartingOption = "earliest",
    max_offsets_per_trigger: MaxOffsetsOption = 0,
    min_partitions: MinPartitionsOption = 0,
    kafka_config: ConfigOption = "",
    kafka_recreated: RecreatedOption = Recreated.fail,
    registry: RegistryOption = "",
    snapshots: SnapshotsOption = "",
    output: OutputOption,
    checkpoint: CheckpointOption = None,
    unrouted: UnroutedOption = Unrouted.keep,
    unrouted_topic: UnroutedTopicOption = None,
    queues: QueuesOption = "",
    table_format: TableFormatOption = None,
    cores: CoresOption = 0,
    log: LogOption = Log.text,
) -> None:
    """Route committed batches again, from their pins, and report for each whether the result is the same.

    selectroute stream rerun 0-99 --into again --input messages --snapshots snapshots --output out

    Give the job's own options, see `selectroute stream run`. The output folder is only read; the job may be
    running. Exit code 1 if a result differs, or if the rerun is stopped.
    """
    if not re.fullmatch(r"all|\d{1,18}(-\d{1,18})?", batches):
        raise typer.BadParameter("give a batch number, a range such as 0-99, or all", param_hint="BATCHES")
    options = _JobOptions.of(locals())
    raise typer.Exit(_run_until_stopped(options, lambda stop: _rerun(options, stop, batches, into)))


class _JobLog:
    """Log of a job on standard error, as text or as lines of JSON."""

    def __init__(self, log: Log) -> None:
        self.in_json = log is Log.json

    def event(self, name: str, text: str, **more: object) -> None:
        """Write an event, in one line."""
        print(self.line(name, text, **more), file=sys.stderr, flush=True)

    def line(self, name: str, text: str, **more: object) -> str:
        """Return the line for an event."""
        if not self.in_json:
            return text
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return json.dumps({"event": name, "timestamp": at, **more}, ensure_ascii=False)

    def warn(self, sentence: str) -> None:
        """Write a warning."""
        self.event("warning", f"selectroute: {sentence}", message=sentence)

    def batch(self, batch: BatchReport) -> None:
        """Write the report of a batch."""
        counts, seconds = batch.counts, sum(batch.seconds.values())
        if not self.in_json:  # in JSON they are in `missing`
            for sentence in batch.missing:
                self.warn(f"{batch.kind} {batch.batch} is incomplete: {sentence}")
        done = "skipped, it was committed before" if batch.skipped else f"{seconds:.2f} s"
        kind = "batch" if batch.kind == "stream" else batch.kind
        text = (
            f"{kind} {batch.batch}  revision {batch.revision}  {counted(batch.inputs, 'input')}  "
            f"{counted(counts.messages, 'message')}: {counts.routed} routed, {counts.unrouted} unrouted, "
            f"{counted(counts.dead_lettered, 'dead letter')}; "
            f"{counted(counts.deliveries, 'delivery', 'deliveries')}, "
            f"{counts.queued} of them to queues, {counts.sent} to Kafka, {counts.refused} refused  ({done})"
        )
        self.event("batch", text, **asdict(batch))


@dataclass(frozen=True, slots=True)
class _JobOptions:
    """Options of the command line that describe a job, by their names; a rerun does not deliver."""

    input: str | None
    format: Format
    max_files_per_trigger: int
    max_message_bytes: int
    kafka_servers: str
    kafka_topics: str
    kafka_pattern: str
    bind: list[str] | None
    kafka_binding: str
    topic_separator: str
    schema_registry: str
    schema_registry_config: str
    schema_registry_missing: MissingSchema
    starting_offsets: str
    max_offsets_per_trigger: int
    min_partitions: int
    kafka_config: str
    kafka_recreated: Recreated
    registry: str
    snapshots: str
    output: str
    checkpoint: str | None
    unrouted: Unrouted
    unrouted_topic: list[str] | None
    queues: str
    table_format: TableFormat | None
    cores: int
    log: _JobLog
    missing_destinations: Missing = Missing.dead_letter
    destination_wait: float = 0.0
    kafka_grouping: KafkaGrouping = KafkaGrouping.delivery
    compact_every: int = 50
    table_retention: int = 24
    name: str = ""
    sample_messages: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> _JobOptions:
        """Return the common options of `run` and `rerun`, given by name.

        Raises BadParameter for conflicting options.
        """
        own = {one.name: given[one.name] for one in fields(cls) if one.name in given}
        options = cls(**own | {"log": _JobLog(given["log"])})
        options.check()
        return options

    def check(self) -> None:
        """Raise BadParameter for conflicting options."""
        reads_kafka = bool(self.kafka_topics or self.kafka_pattern)
        if not self.snapshots and (not self.registry or is_service(self.registry)):
            raise typer.BadParameter(
                "--snapshots is needed: a folder; only a registry in a database has a default",
                param_hint="--snapshots",
            )
        if (self.input is not None) == reads_kafka:
            raise typer.BadParameter(
                "give exactly one input: --input, or --kafka-topics or --kafka-pattern", param_hint="--input"
            )
        if not reads_kafka:
            for given, name in (
                (self.kafka_binding, "--kafka-binding"),
                (self.topic_separator, "--topic-separator"),
                (self.schema_registry, "--schema-registry"),
            ):
                if given:
                    raise typer.BadParameter(f"{name} is for records of --kafka-topics", param_hint=name)
        if self.schema_registry_config and not self.schema_registry:
            raise typer.BadParameter(
                "--schema-registry-config is for --schema-registry", param_hint="--schema-registry-config"
            )
        if reads_kafka and not self.kafka_servers:
            raise typer.BadParameter("--kafka-servers is needed to read topics", param_hint="--kafka-servers")

    def opened(self) -> AbstractContextManager[SubscriptionRegistry | None]:
        """Open the registry, if there is one."""
        if not self.registry:
            return nullcontext()
        import selectroute as sr

        # The publisher verifies it, and a mistyped name must not create an empty database.
        token = os.environ.get("SELECTROUTE_TOKEN")
        if is_service(self.registry):
            return sr.connect(self.registry, token=token)
        return sr.Registry.open(self.registry, create=False, verify=False)

    def job(self, registry: SubscriptionRegistry | None) -> Job:
        """Return the job. Raises SelectRouteError for invalid options."""
        from selectroute.spark import (
            Binding,
            Job,
            KafkaInput,
            kafka_binding,
            kafka_cluster,
            schema_registry,
        )

        config = self.kafka_config or None
        cluster = kafka_cluster(self.kafka_servers, config, self.kafka_recreated.value)
        source: str | KafkaInput | None = self.input
        if source is None:
            assert cluster is not None  # see `check`
            source = KafkaInput(
                cluster,
                tuple(filter(None, self.kafka_topics.split(","))),
                self.kafka_pattern or None,
                kafka_binding(self.bind or [], self.kafka_binding or None, self.topic_separator or None),
                self.starting_offsets,
                self.max_offsets_per_trigger or None,
                self.min_partitions or None,
                schema_registry(
                    self.schema_registry,
                    self.schema_registry_config or None,
                    self.schema_registry_missing.value,
                ),
            )
        unrouted = self.unrouted_topic or os.environ.get("SELECTROUTE_UNROUTED_TOPIC", "").split("\n")
        return Job.of(
            source,
            # One of the two is given, see `check`.
            self.snapshots or registry.snapshots_folder,  # type: ignore[union-attr]
            self.output,
            self.checkpoint,
            file_format=self.format.value,
            max_files=self.max_files_per_trigger,
            unrouted=self.unrouted.value,
            unrouted_topics=tuple(filter(None, unrouted)),
            max_message_bytes=self.max_message_bytes,
            queues=self.queues or None,
            kafka=cluster,
            missing_destinations=self.missing_destinations.value,
            destination_wait=self.destination_wait,
            kafka_grouping=self.kafka_grouping.value,
            binding=Binding.of(self.bind or []) if self.input is not None else Binding(),
            table_format=None if self.table_format is None else self.table_format.value,
            compact_every=self.compact_every,
            name=self.name or None,
            sample_messages=self.sample_messages,
            table_retention_hours=self.table_retention,
        )

    def session(self, stop: Stop) -> Session:
        """Start Spark, or find the running session. An immediate end also ends Java."""
        from selectroute.spark import local_session
        from selectroute.spark.runtime.session import end_java, shielded

        stop.at_once = end_java

        def start() -> Session:
            with shielded():
                return local_session("selectroute stream", self.cores or None, log_level="OFF")

        # In another thread, because PySpark handles SIGINT itself if started in the main one.
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(start).result()


class _UsageError(Exception):
    """Options that do not describe a valid job."""


def _run_until_stopped(options: _JobOptions, work: Any) -> int:
    """Run the work until it is done or stopped; return the exit code."""
    line = options.log.line(
        "ending", "ending after the current batch; Ctrl-C again ends at once", message="asked to end"
    )
    with stopping(line) as stop:
        try:
            with _quiet(options.log), importing():
                return int(work(stop))
        except _UsageError as error:
            options.log.warn(str(error))
            return USAGE
        except MissingExtraError as error:
            options.log.warn(str(error))
            return FAILURE
        except SelectRouteError as error:
            options.log.warn(str(error))
            return _exit_code(error)


class _Forward(logging.Handler):
    """Writer of the package's own log records into the log of the job, in its format."""

    def __init__(self, log: _JobLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """See the base class."""
        self._log.warn(record.getMessage())


@contextmanager
def _quiet(log: _JobLog) -> Iterator[None]:
    """Suppress tracebacks on standard error from py4j and PySpark, which both log and raise them."""
    root, handler = logging.getLogger(), logging.NullHandler()
    own = logging.getLogger("selectroute")
    shown = _Forward(log)
    root.addHandler(handler)  # without a handler, `logging` would write to standard error
    own.addHandler(shown)
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.removeHandler(shown)


def _described(options: _JobOptions, registry: SubscriptionRegistry | None) -> Job:
    try:
        return options.job(registry)
    except SelectRouteError as error:
        raise _UsageError(str(error)) from error


def _run(
    options: _JobOptions, stop: Stop, available_now: bool, trigger_seconds: float, metrics_at: tuple[str, int]
) -> int:
    from selectroute.index.folder.format import latest_revision
    from selectroute.spark import check, start_fanout

    log = options.log
    with options.opened() as registry:
        job = _described(options, registry)
        check(job, registry)
        revision = latest_revision(job.snapshots)
        source = str(options.input or job.source)
        often = "available messages" if available_now else f"every {trigger_seconds:g} s"
        log.event(
            "start",
            f"routing `{source}` at revision {revision} to `{options.output}`, {often}; Ctrl-C ends",
            input=source,
            revision=revision,
            output=str(options.output),
            trigger_seconds=None if available_now else trigger_seconds,
        )
        if stop.asked():
            return 0
        spark = options.session(stop)
        if stop.asked():
            return 0
        metrics = None
        host, port = metrics_at
        if port:
            from selectroute.spark.stream.metrics import StreamMetrics  # needs prometheus-client

            metrics = StreamMetrics()
            metrics.serve(port, host)
            spark.streams.addListener(metrics.listener())

        def done(batch: BatchReport) -> None:
            if metrics is not None:
                metrics.observe(batch)
            log.batch(batch)

        query = start_fanout(
            spark,
            job,
            available_now=available_now,
            trigger_seconds=trigger_seconds,
            on_batch=done,
            registry=registry,
            on_warning=log.warn,
            should_stop=stop.asked,
        )
        if metrics is not None:
            metrics.watch(query)
        query.wait(stop.asked)
    return 0


def _rerun(options: _JobOptions, stop: Stop, batches: str, into: str) -> int:
    from selectroute.spark import rerun as route_again

    held = True
    first, _, last = batches.partition("-")
    bounds: dict[str, int] = {} if first == "all" else {"first": int(first), "last": int(last or first)}
    with options.opened() as registry:
        job = _described(options, registry)
        options.log.event(
            "start",
            f"routing {'all batches' if first == 'all' else f'batches {batches}'} of `{options.output}` "
            f"again, into `{into}`; Ctrl-C ends",
            batches=batches,
            output=str(options.output),
            into=str(into),
        )
        spark = options.session(stop)
        for one in route_again(spark, job, into, should_stop=stop.asked, **bounds):
            why = f": {one.why}" if one.why else ""
            text = f"batch {one.batch}  revision {one.revision}  {one.verdict}{why}"
            options.log.event("rerun", text, **asdict(one))
            held = held and one.held
    return 0 if held and not stop.asked() else FAILURE


def _exit_code(error: SelectRouteError) -> int:
    """Return the exit code of an error: not found, conflict with another job, or any other failure."""
    from selectroute.index.errors import SnapshotNotFoundError
    from selectroute.spark import DestinationNotFoundError, OtherJobError, SourceNotFoundError
    from selectroute.storage.errors import NoBucketError
    from selectroute.store.errors import NoDatabaseError

    not_found = (
        SnapshotNotFoundError,
        SourceNotFoundError,
        DestinationNotFoundError,
        NoDatabaseError,
        NoBucketError,
    )
    if isinstance(error, not_found):
        return NOT_FOUND
    return CONFLICT if isinstance(error, OtherJobError) else FAILURE
