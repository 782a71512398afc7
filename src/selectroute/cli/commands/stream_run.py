"""``selectroute stream run | rerun``: runs the streaming job, or repeats its batches."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from selectroute.cli.connect import is_service
from selectroute.cli.exits import FAILURE, USAGE, exit_code, stopping
from selectroute.cli.options import takes_options
from selectroute.extras import importing
from selectroute.job_options import (
    INPUT,
    KAFKA,
    LARGEST,
    OUTPUT,
    REQUIRED,
    RUNNING,
    SUBSCRIPTIONS,
    WATCHING,
    JobOptions,
    option,
    options_of,
)
from selectroute.selector import SelectRouteError
from selectroute.selector.sentences import counted
from selectroute.service.stopping import Stop

if TYPE_CHECKING:
    from selectroute.client import SubscriptionRegistry
    from selectroute.spark import BatchReport, Job, KafkaInput
    from selectroute.spark.session import Session


@dataclass(frozen=True, kw_only=True)
class _Places:
    """Options of where a job reads and writes, and how it runs.

    Attributes:
        input: Folder of incoming message files: a path or a URL (s3://, gs://, abfss://, hdfs://).
        kafka_servers: Kafka to read from and write to.
        kafka_topics: Topics to read.
        kafka_pattern: Topics to read, as a regular expression.
        bind: A property; repeatable. Of records, weight:int is the header weight, an int;
            price:double=$.order.price a field of the body; customer=@key the key. Of Parquet files,
            JMSType=kind is the column kind; at:long=cast a time, date or decimal as a long;
            at:long=cast(COLUMN) another column.
        kafka_binding: TOML or JSON file that defines the properties.
        topic_separator: Separator of topic levels in Kafka's topic names.
        schema_registry: Registry of the schemas of Avro, Protobuf and JSON Schema bodies.
        schema_registry_config: File with settings of the schema registry's client, name=value a line.
        schema_registry_missing: For an unknown schema, or a schema registry that does not answer: wait, or
            make the records dead letters.
        starting_offsets: Start of the first batch: earliest, latest or JSON.
        max_offsets_per_trigger: The most records a batch; 0: any.
        min_partitions: The fewest partitions to read in; 0: Kafka's own.
        kafka_config: File with settings of Kafka's clients, name=value a line.
        kafka_recreated: For a topic that was created again under its name, or lost records that were read or
            sent: fail, or read the new topic from its beginning, as NAME@2 in the output, and deliver to the
            new one.
        registry: Registry of the subscriptions: a database or a service (its token: SELECTROUTE_TOKEN).
        snapshots: Folder of published snapshots: a path or a URL (s3://bucket/dir).
        output: Folder for the outputs, only of this job.
        checkpoint: Spark's checkpoint; belongs to the output.
        log: Format of the log on standard error: text, or a JSON object per event.
        metrics_port: Port for Prometheus; 0: none.
        metrics_host: Address for Prometheus.
        trigger_seconds: Interval of checks for new messages.
        available_now: Route the available messages, then end.
        cores: Concurrent tasks; 0: all cores of this machine (spark-submit: its own).
    """

    input: str | None = option(None, INPUT, "DIR")
    kafka_servers: str = option("", KAFKA, "HOST:PORT,…")
    kafka_topics: str = option("", KAFKA, "NAME,…")
    kafka_pattern: str | None = option(None, KAFKA, "REGEX")
    bind: tuple[str, ...] = option((), KAFKA, "NAME[:TYPE][=FROM]")
    kafka_binding: str | None = option(None, KAFKA, "FILE")
    topic_separator: str | None = option(None, KAFKA, "CHAR")
    schema_registry: str = option("", KAFKA, "URL")
    schema_registry_config: str | None = option(None, KAFKA, "FILE")
    schema_registry_missing: Literal["wait", "dead-letter"] = option(
        "wait", KAFKA, choices=("wait", "dead-letter")
    )
    starting_offsets: str = option("earliest", KAFKA)
    max_offsets_per_trigger: int = option(0, KAFKA, "N", range=(0, 2**63 - 1))
    min_partitions: int = option(0, KAFKA, "N", range=(0, LARGEST))
    kafka_config: str | None = option(None, KAFKA, "FILE")
    kafka_recreated: str = option("fail", KAFKA, choices=("fail", "read"))
    registry: str = option("", SUBSCRIPTIONS, "URL")
    snapshots: str = option("", SUBSCRIPTIONS, "DIR", shown_default="the one of the registry's database")
    output: str = option(REQUIRED, OUTPUT, "DIR")
    checkpoint: str | None = option(None, OUTPUT, "DIR", shown_default="OUTPUT/_checkpoint")
    log: str = option("text", WATCHING, choices=("text", "json"))
    metrics_port: int = option(0, WATCHING, "PORT", range=(0, 65_535), rerun=False)
    metrics_host: str = option("127.0.0.1", WATCHING, "HOST", rerun=False)
    trigger_seconds: float = option(1.0, RUNNING, "S", range=(0, 86_400.0), rerun=False)
    available_now: bool = option(False, RUNNING, rerun=False)
    cores: int = option(0, RUNNING, "N", range=(0, 65_536))


@dataclass(frozen=True, kw_only=True)
class RunOptions(JobOptions, _Places):
    """Options of `run` and `rerun`: input, output and running, then the options of a job."""

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
            for value, name in (
                (self.kafka_binding, "--kafka-binding"),
                (self.topic_separator, "--topic-separator"),
                (self.schema_registry, "--schema-registry"),
            ):
                if value:
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
        from selectroute.spark import Binding, Job, KafkaInput, kafka_binding, kafka_cluster, schema_registry

        cluster = kafka_cluster(self.kafka_servers, self.kafka_config, self.kafka_recreated)
        source: str | KafkaInput | None = self.input
        if source is None:
            assert cluster is not None  # see `check`
            source = KafkaInput(
                cluster,
                tuple(filter(None, self.kafka_topics.split(","))),
                self.kafka_pattern,
                kafka_binding(self.bind, self.kafka_binding, self.topic_separator),
                self.starting_offsets,
                self.max_offsets_per_trigger or None,
                self.min_partitions or None,
                schema_registry(
                    self.schema_registry, self.schema_registry_config, self.schema_registry_missing
                ),
            )
        return Job.of(
            source,
            # One of the two is given, see `check`.
            self.snapshots or registry.snapshots_folder,  # type: ignore[union-attr]
            self.output,
            self.checkpoint,
            kafka=cluster,
            binding=Binding.of(self.bind) if self.input is not None else Binding(),
            **{name: getattr(self, name) for name in options_of(JobOptions)},
        )

    def session(self, stop: Stop) -> Session:
        """Start Spark, or find the running session. An immediate end also ends Java."""
        from selectroute.spark import local_session
        from selectroute.spark.session import end_java, shielded

        stop.at_once = end_java

        def start() -> Session:
            with shielded():
                return local_session("selectroute stream", self.cores or None, log_level="OFF")

        # In another thread, because PySpark handles SIGINT itself if started in the main one.
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(start).result()


@takes_options
def run(options: RunOptions) -> None:
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
    start again to continue. Every option can also be set in the environment: --max-files-per-trigger is
    SELECTROUTE_MAX_FILES_PER_TRIGGER. Of one that is repeated the variable has a value a line.
    """
    raise typer.Exit(_run_until_stopped(options, _run))


@partial(takes_options, rerun=True)
def rerun(
    into: Annotated[str, typer.Option(metavar="DIR", help="New folder for the results.")],
    options: RunOptions,
    batches: Annotated[str, typer.Argument(help="A batch number, a range such as 0-99, or all.")] = "all",
) -> None:
    """Route committed batches again, from their pins, and report for each whether the result is the same.

    selectroute stream rerun 0-99 --into again --input messages --snapshots snapshots --output out

    Give the job's own options, see `selectroute stream run`. The output folder is only read; the job may be
    running. Exit code 1 if a result differs, or if the rerun is stopped.
    """
    if not re.fullmatch(r"all|\d{1,18}(-\d{1,18})?", batches):
        raise typer.BadParameter("give a batch number, a range such as 0-99, or all", param_hint="BATCHES")
    raise typer.Exit(_run_until_stopped(options, partial(_rerun, batches=batches, into=into)))


class _JobLog:
    """Log of a job on standard error, as text or as lines of JSON."""

    def __init__(self, format: str) -> None:
        self.in_json = format == "json"

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


class _UsageError(SelectRouteError):
    """Options that do not describe a valid job."""


def _run_until_stopped(options: RunOptions, work: Callable[[RunOptions, _JobLog, Stop], int]) -> int:
    """Run the work until it is done or stopped; return the exit code."""
    options.check()
    log = _JobLog(options.log)
    line = log.line(
        "ending", "ending after the current batch; Ctrl-C again ends at once", message="asked to end"
    )
    with stopping(line) as stop:
        try:
            with _quiet(log), importing():
                return work(options, log, stop)
        except SelectRouteError as error:
            log.warn(str(error))
            return USAGE if isinstance(error, _UsageError) else exit_code(error)


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


def _described(options: RunOptions, registry: SubscriptionRegistry | None) -> Job:
    try:
        return options.job(registry)
    except SelectRouteError as error:
        raise _UsageError(str(error)) from error


def _run(options: RunOptions, log: _JobLog, stop: Stop) -> int:
    from selectroute.index.snapshot_files import latest_revision
    from selectroute.spark import check, start_fanout

    with options.opened() as registry:
        job = _described(options, registry)
        check(job, registry)
        revision = latest_revision(job.snapshots)
        source = str(options.input or job.source)
        often = "available messages" if options.available_now else f"every {options.trigger_seconds:g} s"
        log.event(
            "start",
            f"routing `{source}` at revision {revision} to `{options.output}`, {often}; Ctrl-C ends",
            input=source,
            revision=revision,
            output=options.output,
            trigger_seconds=None if options.available_now else options.trigger_seconds,
        )
        if stop.asked():
            return 0
        spark = options.session(stop)
        if stop.asked():
            return 0
        metrics = None
        if options.metrics_port:
            from selectroute.spark.stream.metrics import StreamMetrics  # needs prometheus-client

            metrics = StreamMetrics()
            metrics.serve(options.metrics_port, options.metrics_host)
            spark.streams.addListener(metrics.listener())

        def done(batch: BatchReport) -> None:
            if metrics is not None:
                metrics.observe(batch)
            log.batch(batch)

        query = start_fanout(
            spark,
            job,
            available_now=options.available_now,
            trigger_seconds=options.trigger_seconds,
            on_batch=done,
            registry=registry,
            on_warning=log.warn,
            should_stop=stop.asked,
        )
        if metrics is not None:
            metrics.watch(query)
        query.wait(stop.asked)
    return 0


def _rerun(options: RunOptions, log: _JobLog, stop: Stop, batches: str, into: str) -> int:
    from selectroute.spark import rerun as route_again

    held = True
    first, _, last = batches.partition("-")
    bounds: dict[str, int] = {} if first == "all" else {"first": int(first), "last": int(last or first)}
    with options.opened() as registry:
        job = _described(options, registry)
        log.event(
            "start",
            f"routing {'all batches' if first == 'all' else f'batches {batches}'} of `{options.output}` "
            f"again, into `{into}`; Ctrl-C ends",
            batches=batches,
            output=options.output,
            into=into,
        )
        spark = options.session(stop)
        for result in route_again(spark, job, into, should_stop=stop.asked, **bounds):
            why = f": {result.why}" if result.why else ""
            text = f"batch {result.batch}  revision {result.revision}  {result.verdict}{why}"
            log.event("rerun", text, **asdict(result))
            held = held and result.held
    return 0 if held and not stop.asked() else FAILURE
