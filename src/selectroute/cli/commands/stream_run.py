"""``selectroute stream run | rerun``: the streaming job, and its batches once more."""

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
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from selectroute.cli.connect import is_service
from selectroute.cli.exit_codes import CONFLICT, FAILURE, NOT_FOUND, USAGE
from selectroute.cli.stopping import stopping
from selectroute.selector import SelectRouteError
from selectroute.selector.explain.sentences import counted
from selectroute.service.stopping import Stop

if TYPE_CHECKING:
    from selectroute.registry.protocol import SubscriptionRegistry
    from selectroute.spark import BatchReport, Job, KafkaCluster, KafkaInput
    from selectroute.spark.runtime.session import Session
    from selectroute.spark.stream.metrics import StreamMetrics

_LONGEST_TRIGGER: Final = 86_400.0
_LARGEST: Final = 2**31 - 1


class Format(StrEnum):
    """Format of message files."""

    auto = "auto"
    parquet = "parquet"
    json = "json"


class Unrouted(StrEnum):
    """Treatment of messages that nobody wants."""

    keep = "keep"
    drop = "drop"
    fail = "fail"


class Missing(StrEnum):
    """Treatment of destinations that do not exist."""

    dead_letter = "dead-letter"
    fail = "fail"


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
    """Return an option that can also be set in the environment, under its name."""
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
    Path | None, _option("input", "Folder in which message files arrive.", _INPUT, "DIR", show_default=False)
]
FormatOption = Annotated[
    Format, _option("format", "How to read them; auto goes by the names' endings.", _INPUT)
]
MaxFilesOption = Annotated[
    int, _option("max-files-per-trigger", "Files a batch takes at most.", _INPUT, "N", min=1, max=_LARGEST)
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
    _option("kafka-servers", "Kafka to read, and to write to.", _KAFKA, "HOST:PORT,…", show_default=False),
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
BindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bind",
        metavar="NAME[:TYPE][=FROM]",
        help="One property of a record; as often as needed. weight:int is the header weight, an int; "
        "price:double=$.order.price a field of the body; customer=@key the key.",
        rich_help_panel=_KAFKA,
        show_default=False,
    ),
]
BindingOption = Annotated[
    str,
    _option(
        "kafka-binding",
        "TOML or JSON file that says what properties are.",
        _KAFKA,
        "FILE",
        show_default=False,
    ),
]
SeparatorOption = Annotated[
    str,
    _option(
        "topic-separator",
        "Divides the levels of a topic string in Kafka's names.",
        _KAFKA,
        "CHAR",
        show_default=False,
    ),
]
StartingOption = Annotated[
    str, _option("starting-offsets", "earliest, latest or JSON: where the first batch begins.", _KAFKA)
]
MaxOffsetsOption = Annotated[
    int,
    _option(
        "max-offsets-per-trigger", "Records a batch takes at most; 0: any.", _KAFKA, "N", min=0, max=2**63 - 1
    ),
]
MinPartitionsOption = Annotated[
    int,
    _option(
        "min-partitions",
        "Parts into which records are cut at least; 0: Kafka's.",
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
        "Whose subscriptions these are: a database or a service (its token: SELECTROUTE_TOKEN).",
        _SUBSCRIPTIONS,
        "URL",
        show_default=False,
    ),
]
SnapshotsOption = Annotated[
    str,
    _option(
        "snapshots",
        "Folder in which snapshots are published.",
        _SUBSCRIPTIONS,
        "DIR",
        show_default="as the registry's database says",
    ),
]
OutputOption = Annotated[
    Path, _option("output", "Folder for the outputs, this job's alone.", _OUTPUT, "DIR", show_default=False)
]
CheckpointOption = Annotated[
    Path | None,
    _option(
        "checkpoint",
        "What Spark has read; it belongs to the output.",
        _OUTPUT,
        "DIR",
        show_default="OUTPUT/_checkpoint",
    ),
]
UnroutedOption = Annotated[Unrouted, _option("unrouted", "Messages that nobody wants.", _OUTPUT)]
UnroutedTopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unrouted-topic",
        metavar="FILTER=POLICY",
        help="The same for topics, such as 'audit/#=fail'; the first filter that takes a topic counts.",
        rich_help_panel=_OUTPUT,
        show_default=False,
    ),
]
QueuesOption = Annotated[
    str,
    _option(
        "queues",
        "Database of the queues to which subscriptions are delivered.",
        _OUTPUT,
        "URL",
        show_default=False,
    ),
]
MissingOption = Annotated[
    Missing,
    _option(
        "missing-destinations",
        "Deliveries to queues and topics that do not exist become dead letters, or no job starts.",
        _OUTPUT,
    ),
]
WaitOption = Annotated[
    float,
    _option(
        "destination-wait",
        "A full queue or refusing topic is waited for so long; what it should get then becomes dead letters. "
        "inf: as long as it takes.",
        _OUTPUT,
        "S",
        min=0,
        callback=_number,
    ),
]
CoresOption = Annotated[
    int,
    _option(
        "cores",
        "Tasks at once; 0 is all of this machine (spark-submit: its own).",
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
        "Look for new messages so often.",
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
        help="Route what is there, and end.",
        envvar="SELECTROUTE_AVAILABLE_NOW",
        show_envvar=False,
        rich_help_panel=_RUNNING,
    ),
]
LogOption = Annotated[
    Log, _option("log", "What is said on standard error: text, or a line of JSON an event.", _WATCHING)
]
PortOption = Annotated[
    int,
    _option(
        "metrics-port", "Answer Prometheus on this port; 0: nowhere.", _WATCHING, "PORT", min=0, max=65_535
    ),
]
HostOption = Annotated[str, _option("metrics-host", "On this address.", _WATCHING, "HOST")]


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
    starting_offsets: StartingOption = "earliest",
    max_offsets_per_trigger: MaxOffsetsOption = 0,
    min_partitions: MinPartitionsOption = 0,
    kafka_config: ConfigOption = "",
    registry: RegistryOption = "",
    snapshots: SnapshotsOption = "",
    output: OutputOption,
    checkpoint: CheckpointOption = None,
    unrouted: UnroutedOption = Unrouted.keep,
    unrouted_topic: UnroutedTopicOption = None,
    queues: QueuesOption = "",
    missing_destinations: MissingOption = Missing.dead_letter,
    destination_wait: WaitOption = 30.0,
    trigger_seconds: TriggerOption = 1.0,
    available_now: AvailableOption = False,
    cores: CoresOption = 0,
    log: LogOption = Log.text,
    metrics_port: PortOption = 0,
    metrics_host: HostOption = "127.0.0.1",
) -> None:
    """Route message files, or records of Kafka, to every matching subscription until told to end (Ctrl-C,
    SIGTERM).

    selectroute stream run --input messages --snapshots snapshots --output out

    selectroute stream run --input messages --registry sqlite:///subscriptions.db --output out

    selectroute stream run --kafka-servers host:9092 --kafka-topics cars --bind weight:int …

    A file must appear whole: write it elsewhere and rename it into the folder. Parquet columns are named as
    the identifiers of the selectors; a JSON line is {"headers": {"JMSType": "car"}, "properties": {"weight":
    3000}, "topic": "cars/eu"}.

    Subscriptions come from published snapshots (`selectroute index build SUBS.jsonl DIR`), or are a
    registry's, which `selectroute serve` publishes; a new revision is used from the next batch on.

    OUTPUT/deliveries has a row a delivery, OUTPUT/unrouted the messages that nobody wants,
    OUTPUT/dead-letters what could not be read or judged, and OUTPUT/accounting.jsonl a line a batch. Messages
    for destinations queue:NAME go to the database of --queues, for kafka:TOPIC to --kafka-servers.

    The first Ctrl-C or SIGTERM finishes the batch that runs and ends with 0, the second ends at once; start
    again to go on. Every option can be set in the environment, too: --max-files-per-trigger is
    SELECTROUTE_MAX_FILES_PER_TRIGGER.
    """
    asked = _asked(locals())

    def work(stop: Stop) -> int:
        return _run(asked, stop, available_now, trigger_seconds, (metrics_host, metrics_port))

    raise typer.Exit(_ended(asked, work))


def rerun(
    *,
    into: Annotated[
        Path,
        typer.Option(metavar="DIR", help="New folder for what comes out.", show_default=False),
    ],
    batches: Annotated[
        str, typer.Argument(help="The number of a batch, or the first and the last one: 0-99; or all.")
    ] = "all",
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
    starting_offsets: StartingOption = "earliest",
    max_offsets_per_trigger: MaxOffsetsOption = 0,
    min_partitions: MinPartitionsOption = 0,
    kafka_config: ConfigOption = "",
    registry: RegistryOption = "",
    snapshots: SnapshotsOption = "",
    output: OutputOption,
    checkpoint: CheckpointOption = None,
    unrouted: UnroutedOption = Unrouted.keep,
    unrouted_topic: UnroutedTopicOption = None,
    queues: QueuesOption = "",
    cores: CoresOption = 0,
    log: LogOption = Log.text,
) -> None:
    """Route committed batches once more, from their pins, and say of each whether the same comes out.

    selectroute stream rerun 0-99 --into again --input messages --snapshots snapshots --output out

    The options are the job's own, as `selectroute stream run` has them. The output folder is only read, and
    the job may run meanwhile. Exit code 1 if something else came out.
    """
    if not re.fullmatch(r"all|\d{1,18}(-\d{1,18})?", batches):
        raise typer.BadParameter(
            "the number of a batch, or the first and the last one: 0-99, or all", param_hint="BATCHES"
        )
    asked = _asked(locals())
    raise typer.Exit(_ended(asked, lambda stop: _rerun(asked, stop, batches, into)))


def _asked(given: Mapping[str, Any]) -> _Asked:
    """Return the job that the options which `run` and `rerun` have in common describe, by their names.

    Raises BadParameter where they do not go together.
    """
    asked = _Asked(
        given["input"],
        given["snapshots"],
        given["output"],
        given["checkpoint"],
        given["format"],
        given["max_files_per_trigger"],
        given["max_message_bytes"],
        given["unrouted"],
        tuple(given["unrouted_topic"] or os.environ.get("SELECTROUTE_UNROUTED_TOPIC", "").split("\n")),
        given["queues"],
        given.get("missing_destinations", Missing.dead_letter),  # a rerun delivers to none
        given.get("destination_wait", 0.0),
        given["registry"],
        _Kafka(
            given["kafka_servers"],
            given["kafka_topics"],
            given["kafka_pattern"],
            given["kafka_config"],
            given["kafka_binding"],
            tuple(given["bind"] or ()),
            given["topic_separator"],
            given["starting_offsets"],
            given["max_offsets_per_trigger"],
            given["min_partitions"],
        ),
        given["cores"],
        _Speaker(given["log"]),
    )
    asked.check()
    return asked


class _Speaker:
    """Log of a job on standard error, as text or as lines of JSON."""

    def __init__(self, log: Log) -> None:
        self.in_json = log is Log.json

    def event(self, name: str, text: str, **more: object) -> None:
        """Say what happened, in one line."""
        print(self.line(name, text, **more), file=sys.stderr, flush=True)

    def line(self, name: str, text: str, **more: object) -> str:
        """Return the line for an event."""
        if not self.in_json:
            return text
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return json.dumps({"event": name, "timestamp": at, **more}, ensure_ascii=False)

    def warn(self, sentence: str) -> None:
        """Say what is wrong."""
        self.event("warning", f"selectroute: {sentence}", message=sentence)

    def batch(self, batch: BatchReport) -> None:
        """Say what a batch did."""
        counts, seconds = batch.counts, sum(batch.seconds.values())
        if not self.in_json:  # the line of JSON has them in `missing`
            for sentence in batch.missing:
                self.warn(f"{batch.kind} {batch.batch} is not whole: {sentence}")
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
class _Kafka:
    """Kafka's options of the command line."""

    servers: str
    topics: str
    pattern: str
    config: str
    binding: str
    bind: tuple[str, ...]
    separator: str
    starting_offsets: str
    max_offsets: int
    min_partitions: int

    def cluster(self) -> KafkaCluster | None:
        from selectroute.spark import kafka_cluster

        return kafka_cluster(self.servers, self.config or None)

    def records(self, cluster: KafkaCluster) -> KafkaInput:
        from selectroute.spark import KafkaInput, kafka_binding

        return KafkaInput(
            cluster,
            tuple(filter(None, self.topics.split(","))),
            self.pattern or None,
            kafka_binding(list(self.bind), self.binding or None, self.separator or None),
            self.starting_offsets,
            self.max_offsets or None,
            self.min_partitions or None,
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """Job that the command line describes."""

    input: Path | None
    snapshots: str
    output: Path
    checkpoint: Path | None
    format: Format
    max_files: int
    max_message_bytes: int
    unrouted: Unrouted
    unrouted_topics: tuple[str, ...]
    queues: str
    missing_destinations: Missing
    destination_wait: float
    registry: str
    kafka: _Kafka
    cores: int
    says: _Speaker

    def check(self) -> None:
        """Refuse options that do not go together."""
        reads_kafka = bool(self.kafka.topics or self.kafka.pattern)
        if not self.snapshots and (not self.registry or is_service(self.registry)):
            raise typer.BadParameter(
                "--snapshots is needed: a folder; only a registry's database says which it is",
                param_hint="--snapshots",
            )
        if (self.input is not None) == reads_kafka:
            raise typer.BadParameter(
                "one input is needed: --input, or --kafka-topics or --kafka-pattern", param_hint="--input"
            )
        if not reads_kafka:
            for given, name in (
                (self.kafka.bind, "--bind"),
                (self.kafka.binding, "--kafka-binding"),
                (self.kafka.separator, "--topic-separator"),
            ):
                if given:
                    raise typer.BadParameter(f"{name} is for records of --kafka-topics", param_hint=name)
        if reads_kafka and not self.kafka.servers:
            raise typer.BadParameter("--kafka-servers is needed to read topics", param_hint="--kafka-servers")

    def opened(self) -> AbstractContextManager[SubscriptionRegistry | None]:
        """Open the registry, if there is one."""
        if not self.registry:
            return nullcontext()
        import selectroute as sr

        # The publisher verifies it, and a mistyped name must not make an empty one.
        token = os.environ.get("SELECTROUTE_TOKEN")
        if is_service(self.registry):
            return sr.connect(self.registry, token=token)
        return sr.Registry.open(self.registry, create=False, verify=False)

    def job(self, registry: SubscriptionRegistry | None) -> Job:
        """Return the job. Raises SelectRouteError where the options describe none."""
        from selectroute.spark import Job

        cluster = self.kafka.cluster()
        if self.input is None:
            assert cluster is not None  # see `check`
            source: Path | KafkaInput = self.kafka.records(cluster)
        else:
            source = self.input
        return Job.of(
            source,
            # One of the two is there, see `check`.
            self.snapshots or registry.snapshots_folder,  # type: ignore[union-attr]
            self.output,
            self.checkpoint,
            file_format=self.format.value,
            max_files=self.max_files,
            unrouted=self.unrouted.value,
            unrouted_topics=tuple(filter(None, self.unrouted_topics)),
            max_message_bytes=self.max_message_bytes,
            queues=self.queues or None,
            kafka=cluster,
            missing_destinations=self.missing_destinations.value,
            destination_wait=self.destination_wait,
        )

    def session(self, job: Job, stop: Stop) -> Session:
        """Start Spark, or find the session that runs. An end at once ends Java, too."""
        from selectroute.spark import find_connector, local_session
        from selectroute.spark.runtime.session import end_java, shielded

        stop.at_once = end_java
        # A JVM that spark-submit has started has the connector that its command line named.
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ
        jars = {} if job.kafka is None or submitted else find_connector().conf()

        def start() -> Session:
            with shielded():
                return local_session("selectroute stream", self.cores or None, log_level="OFF", **jars)

        # In another thread, because PySpark takes SIGINT for itself where it starts in the main one.
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(start).result()


class _UsageError(Exception):
    """Options that describe no job."""


def _ended(asked: _Asked, work: Any) -> int:
    """Do the work until it is done or told to end; return the exit code."""
    line = asked.says.line(
        "ending", "ending after the batch that runs; Ctrl-C again ends at once", message="asked to end"
    )
    with stopping(line) as stop:
        try:
            with _quiet():
                return int(work(stop))
        except _UsageError as error:
            asked.says.warn(str(error))
            return USAGE
        except SelectRouteError as error:
            asked.says.warn(str(error))
            return _exit_code(error)
        except ModuleNotFoundError as error:
            asked.says.warn(f"{error.name} is missing: a stream needs the extra `all` of selectroute")
            return FAILURE


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep tracebacks of py4j and PySpark, which log them and raise, too, off standard error."""
    root, handler = logging.getLogger(), logging.NullHandler()
    own = logging.getLogger("selectroute")
    shown = logging.StreamHandler()
    root.addHandler(handler)  # without any, `logging` would write them on standard error
    own.addHandler(shown)
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.removeHandler(shown)


def _described(asked: _Asked, registry: SubscriptionRegistry | None) -> Job:
    try:
        return asked.job(registry)
    except SelectRouteError as error:
        raise _UsageError(str(error)) from error


def _run(
    asked: _Asked, stop: Stop, available_now: bool, trigger_seconds: float, metrics_at: tuple[str, int]
) -> int:
    from selectroute.index.folder.format import latest_revision
    from selectroute.spark import check, start_fanout

    says = asked.says
    with asked.opened() as registry:
        job = _described(asked, registry)
        check(job, registry)
        revision = latest_revision(job.snapshots)
        source = str(asked.input or job.source)
        often = "what is there" if available_now else f"every {trigger_seconds:g} s"
        says.event(
            "start",
            f"routing `{source}` at revision {revision} to `{asked.output}`, {often}; Ctrl-C ends",
            input=source,
            revision=revision,
            output=str(asked.output),
            trigger_seconds=None if available_now else trigger_seconds,
        )
        if stop.asked():
            return 0
        spark = asked.session(job, stop)
        if stop.asked():
            return 0
        metrics = _measured(spark, *metrics_at) if metrics_at[1] else None

        def done(batch: BatchReport) -> None:
            if metrics is not None:
                metrics.observe(batch)
            says.batch(batch)

        query = start_fanout(
            spark,
            job,
            available_now=available_now,
            trigger_seconds=trigger_seconds,
            on_batch=done,
            registry=registry,
            on_warning=says.warn,
            should_stop=stop.asked,
        )
        if metrics is not None:
            metrics.watch(query)
        query.wait(stop.asked)
    return 0


def _measured(spark: Session, host: str, port: int) -> StreamMetrics:
    """Answer Prometheus from now on; return what takes each batch, and the job."""
    from selectroute.spark.stream.metrics import StreamMetrics  # needs prometheus-client

    metrics = StreamMetrics()
    metrics.serve(port, host)
    spark.streams.addListener(metrics.listener())
    return metrics


def _rerun(asked: _Asked, stop: Stop, batches: str, into: Path) -> int:
    from selectroute.spark import rerun as route_again

    held = True
    first, _, last = batches.partition("-")
    bounds: dict[str, int] = {} if first == "all" else {"first": int(first), "last": int(last or first)}
    with asked.opened() as registry:
        job = _described(asked, registry)
        asked.says.event(
            "start",
            f"routing {'all batches' if first == 'all' else f'batches {batches}'} of `{asked.output}` again, "
            f"into `{into}`; Ctrl-C ends",
            batches=batches,
            output=str(asked.output),
            into=str(into),
        )
        spark = asked.session(job, stop)
        for one in route_again(spark, job, into, should_stop=stop.asked, **bounds):
            why = f": {one.why}" if one.why else ""
            text = f"batch {one.batch}  revision {one.revision}  {one.verdict}{why}"
            asked.says.event("rerun", text, **asdict(one))
            held = held and one.held
    return 0 if held and not stop.asked() else FAILURE


def _exit_code(error: SelectRouteError) -> int:
    """Return the exit code of an error: what is not there, what is another job's, or any other failure."""
    from selectroute.index.errors import SnapshotNotFoundError
    from selectroute.spark import DestinationNotFoundError, OtherJobError, SourceNotFoundError
    from selectroute.store.errors import NoDatabaseError

    not_there = SnapshotNotFoundError, SourceNotFoundError, DestinationNotFoundError, NoDatabaseError
    if isinstance(error, not_there):
        return NOT_FOUND
    return CONFLICT if isinstance(error, OtherJobError) else FAILURE
