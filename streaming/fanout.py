"""Fan messages out to their subscribers: a Structured Streaming application, read top to bottom.

    python streaming/fanout.py --input messages --snapshots snapshots --output out
    python streaming/fanout.py --input messages --registry sqlite:///subscriptions.db --output out
    python streaming/fanout.py --kafka-servers host:9092 --kafka-topics cars --snapshots … --output out
    spark-submit --master spark://host:7077 streaming/fanout.py --input … --snapshots … --output …

The logic is `selectroute.spark.query`; what it promises is in the README beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import SparkSession

import selectroute as sr
from selectroute.spark import (
    BatchReport,
    DestinationNotFoundError,
    Job,
    KafkaCluster,
    KafkaInput,
    OtherJobError,
    SourceNotFoundError,
    check,
    find_connector,
    kafka_binding,
    kafka_cluster,
    local_session,
    rerun,
    start_fanout,
)

if TYPE_CHECKING:
    from selectroute.spark.metrics import StreamMetrics

OnBatch: TypeAlias = Callable[[BatchReport], None]

FAILURE, USAGE, NOT_FOUND, CONFLICT = 1, 2, 3, 4
"""Exit codes, as those of `selectroute`."""

HELP = """\
Every file that appears in the input folder, or every record of Kafka's topics, is routed: each message to
each subscription whose topic filter and selector it satisfies. Outputs, in Parquet, a folder batch=<n> for
each batch:

  OUTPUT/deliveries     subscription, revision, source, partition, offset, message_id
  OUTPUT/unrouted       messages that nobody wants
  OUTPUT/dead-letters   what could not be read or judged: stage, reason, message, source, offset, raw; with
                        a subscription it is one delivery that was refused, and the message went on
  OUTPUT/accounting.jsonl   a line a batch; messages = routed + unrouted + dead_lettered, exactly

A file must appear whole: write it elsewhere and rename it into the folder. Parquet columns are named as the
identifiers of the selectors (field b of a struct a is a.b), with @topic for the topic; JSON lines are
{"headers": {"JMSType": "car"}, "properties": {"weight": 3000}, "topic": "cars/eu"}.
Subscriptions come from published snapshots (`selectroute index build SUBS.jsonl DIR`); a new revision is used
from the next batch on. With --registry they are a registry's, which `selectroute serve` or `selectroute
registry publish --follow` publishes. It is told from which batch on each change holds, and subscriptions that
are resumed from last-processed get what they missed, as batches -1, -2, … The token for a service is
SELECTROUTE_TOKEN. With --queues each message for a subscription of the destination queue:NAME is put to that
queue, once; a full queue holds the stream back. A subscription of the destination kafka:TOPIC gets its
messages there, in the Kafka of --kafka-servers, at least once; each record says in its headers which delivery
it is (selectroute.kafka.deduplicate). A record's header is the property of its name, of the type that --bind
says (--bind weight:int --bind 'price:double=$.order.price' --bind customer=@key).
`selectroute dead-letter replay OUTPUT` has the job judge dead letters once more, as batches -1, -2, …
--rerun 0-99 --into DIR, with the options of the job, routes committed batches again, from their pins, and
says of each whether the same came out (exit code 1 if not). The job may run meanwhile.
Ctrl-C or SIGTERM: the batch that runs is finished; start again to go on.
Every option can also be set in the environment: --max-files-per-trigger is SELECTROUTE_MAX_FILES_PER_TRIGGER.
"""


def arguments() -> argparse.Namespace:
    """Read the command line; what is not given comes from SELECTROUTE_* in the environment."""
    parser = argparse.ArgumentParser(
        prog="fanout.py",
        description="Route a stream of messages to every matching subscription.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def option(name: str, help: str, default: str | None = None, **more: object) -> None:
        value = os.environ.get("SELECTROUTE_" + name.upper().replace("-", "_"), default)
        shown = f" (default: {default})" if default else ""
        parser.add_argument(f"--{name}", default=value, required=value is None, help=help + shown, **more)  # type: ignore[arg-type]

    option("input", "folder in which message files arrive", "", metavar="DIR")
    option("kafka-servers", "Kafka to read, and to write to: host:port,host:port", "", metavar="HOSTS")
    option("kafka-topics", "topics to read, with commas between", "", metavar="NAMES")
    option("kafka-pattern", "topics to read, as a regular expression", "", metavar="REGEX")
    option("kafka-config", "file with settings of Kafka's clients, name=value a line", "", metavar="FILE")
    option("kafka-binding", "TOML or JSON file that says what properties are", "", metavar="FILE")
    option("topic-separator", "divides the levels of a topic string in Kafka's names", "", metavar="CHAR")
    option("starting-offsets", "earliest, latest or JSON: where the first batch begins", "earliest")
    option("max-offsets-per-trigger", "records a batch takes at most; 0: any", "0", metavar="N", type=int)
    option(
        "min-partitions", "parts into which records are cut at least; 0: Kafka's", "0", metavar="N", type=int
    )
    parser.add_argument(
        "--bind", action="append", default=[], metavar="NAME[:TYPE][=FROM]", help="one property of a record"
    )
    option("registry", "whose subscriptions these are: URL of a database or of a service", "", metavar="URL")
    option(
        "snapshots",
        "folder in which snapshots are published (default: as the registry says)",
        "",
        metavar="DIR",
    )
    option("output", "folder for the outputs, this job's alone", metavar="DIR")
    option("checkpoint", "what Spark has read; belongs to the output", "OUTPUT/_checkpoint", metavar="DIR")
    option("format", "parquet, json (lines) or auto: by the files' names", "auto")
    option("unrouted", "messages that nobody wants: keep, drop or fail", "keep")
    parser.add_argument(
        "--unrouted-topic",
        action="append",
        default=list(filter(None, os.environ.get("SELECTROUTE_UNROUTED_TOPIC", "").splitlines())),
        metavar="FILTER=POLICY",
        help="the same for topics, such as 'audit/#=fail'; the first filter that takes a topic counts",
    )
    option("max-files-per-trigger", "files a batch takes at most", "16", metavar="N", type=int)
    option(
        "max-message-bytes", "a longer line or record is a dead letter", str(4 << 20), metavar="N", type=int
    )
    option("queues", "database of the queues to which subscriptions are delivered", "", metavar="URL")
    option("metrics-port", "answer Prometheus on this port; 0: nowhere", "0", metavar="PORT", type=int)
    option("metrics-host", "on this address", "127.0.0.1", metavar="HOST")
    option("log", "what is said on standard error: text, or json lines", "text", choices=("text", "json"))
    option("rerun", "route these batches again and compare: 7, 0-99 or all; then end", "", metavar="BATCHES")
    option("into", "new folder for what --rerun writes", "", metavar="DIR")
    option("trigger-seconds", "look for new messages so often", "1", metavar="S", type=float)
    option("cores", "tasks at once; 0 is all (spark-submit: its own)", "0", metavar="N", type=int)
    now = os.environ.get("SELECTROUTE_AVAILABLE_NOW", "").lower() in ("1", "true", "yes")
    parser.add_argument(
        "--available-now", action="store_true", default=now, help="route what is there, and end"
    )
    given = parser.parse_args()
    if not given.snapshots and (not given.registry or given.registry.startswith(("http://", "https://"))):
        parser.error("--snapshots is needed: a folder; only a registry's database says which it is")
    if bool(given.input) == bool(given.kafka_topics or given.kafka_pattern):
        parser.error("one input is needed: --input, or --kafka-topics or --kafka-pattern")
    if (given.kafka_topics or given.kafka_pattern) and not given.kafka_servers:
        parser.error("--kafka-servers is needed to read topics")
    if bool(given.rerun) != bool(given.into):
        parser.error("--rerun and --into go together")
    if given.rerun and not re.fullmatch(r"all|\d+(-\d+)?", given.rerun):
        parser.error("--rerun takes the number of a batch, or the first and the last one: 0-99, or all")
    return given


def report(batch: BatchReport) -> None:
    """Say on standard error what a batch did."""
    counts, seconds = batch.counts, sum(batch.seconds.values())
    for sentence in batch.missing:
        warn(f"{batch.kind} {batch.batch} is not whole: {sentence}")
    done = "skipped, it was committed before" if batch.skipped else f"{seconds:.2f} s"
    kind = "batch" if batch.kind == "stream" else batch.kind
    print(
        f"{kind} {batch.batch}  revision {batch.revision}  {batch.inputs} inputs  "
        f"{counts.messages} messages: {counts.routed} routed, {counts.unrouted} unrouted, "
        f"{counts.dead_lettered} dead letters; {counts.deliveries} deliveries, "
        f"{counts.queued} of them to queues, {counts.sent} to Kafka, {counts.refused} refused  ({done})",
        file=sys.stderr,
        flush=True,
    )


def warn(sentence: str) -> None:
    """Say something on standard error."""
    print(f"fanout: {sentence}", file=sys.stderr, flush=True)


def report_json(batch: BatchReport) -> None:
    """The same for machines: a line of JSON a batch."""
    log_json("batch", **asdict(batch))


def warn_json(sentence: str) -> None:
    """The same for machines."""
    log_json("warning", message=sentence)


def log_json(event: str, **more: object) -> None:
    """Write a line of JSON on standard error."""
    line = {"event": event, "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"), **more}
    print(json.dumps(line, ensure_ascii=False), file=sys.stderr, flush=True)


def records(given: argparse.Namespace, cluster: KafkaCluster | None) -> KafkaInput:
    """The records of Kafka that the command line names."""
    assert cluster is not None
    return KafkaInput(
        cluster,
        tuple(filter(None, given.kafka_topics.split(","))),
        given.kafka_pattern or None,
        kafka_binding(given.bind, given.kafka_binding or None, given.topic_separator or None),
        given.starting_offsets,
        given.max_offsets_per_trigger or None,
        given.min_partitions or None,
    )


def measured(spark: SparkSession, given: argparse.Namespace) -> StreamMetrics:
    """Answer Prometheus from now on; return what takes each batch, and the job."""
    from selectroute.spark.metrics import StreamMetrics  # wants prometheus-client

    metrics = StreamMetrics()
    metrics.serve(given.metrics_port, given.metrics_host)
    spark.streams.addListener(metrics.listener())
    return metrics


def route_again(spark: SparkSession, job: Job, given: argparse.Namespace, stopped: threading.Event) -> int:
    """Route committed batches once more; return 0 if the same comes out of each."""
    held = True
    first, _, last = given.rerun.partition("-")
    bounds: dict[str, int] = {} if first == "all" else {"first": int(first), "last": int(last or first)}
    for one in rerun(spark, job, given.into, should_stop=stopped.is_set, **bounds):
        if given.log == "json":
            log_json("rerun", **asdict(one))
        else:
            why = f": {one.why}" if one.why else ""
            print(
                f"batch {one.batch}  revision {one.revision}  {one.verdict}{why}", file=sys.stderr, flush=True
            )
        held = held and one.held
    return 0 if held and not stopped.is_set() else FAILURE


def opened(url: str) -> AbstractContextManager[sr.Registry | None]:
    """Open the registry, if there is one."""
    if not url:
        return nullcontext()
    # It is the publisher's to verify it, and nobody's to make an empty one by a mistyped name.
    return sr.Registry.open(url, create=False, verify=False, token=os.environ.get("SELECTROUTE_TOKEN"))


def asked_for(given: argparse.Namespace, cluster: KafkaCluster | None, snapshots: str | Path) -> Job:
    """The job that the command line describes. Raises SelectRouteError where it describes none."""
    return Job.of(
        given.input or records(given, cluster),
        snapshots,
        given.output,
        None if given.checkpoint == "OUTPUT/_checkpoint" else given.checkpoint,
        file_format=given.format,
        max_files=given.max_files_per_trigger,
        unrouted=given.unrouted,
        unrouted_topics=tuple(given.unrouted_topic),
        max_message_bytes=given.max_message_bytes,
        queues=given.queues or None,
        kafka=cluster,
    )


def exit_code(error: sr.SelectRouteError) -> int:
    """The exit code of an error: what is not there, what is another job's, or any other failure."""
    if isinstance(error, sr.SnapshotNotFoundError | SourceNotFoundError | DestinationNotFoundError):
        return NOT_FOUND
    return CONFLICT if isinstance(error, OtherJobError) else FAILURE


def main() -> int:
    """Run the application; return its exit code."""
    given = arguments()
    in_json = given.log == "json"
    on_batch: OnBatch = report_json if in_json else report
    on_warning = warn_json if in_json else warn
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        with opened(given.registry) as registry:
            # see arguments: one of the two there is
            snapshots = given.snapshots or registry.snapshots_folder  # type: ignore[union-attr]
            try:
                cluster = kafka_cluster(given.kafka_servers, given.kafka_config or None)
                job = asked_for(given, cluster, snapshots)
            except sr.SelectRouteError as error:
                on_warning(str(error))
                return USAGE
            if not given.rerun:
                check(job, registry)
            # A JVM that spark-submit has started has the connector that its command line named.
            jars = {} if cluster is None or "PYSPARK_GATEWAY_PORT" in os.environ else find_connector().conf()
            spark = local_session("selectroute fan-out", given.cores or None, log_level="OFF", **jars)
            if given.rerun:
                return route_again(spark, job, given, stopped)
            metrics = measured(spark, given) if given.metrics_port else None

            def done(batch: BatchReport) -> None:
                if metrics is not None:
                    metrics.observe(batch)
                on_batch(batch)

            query = start_fanout(
                spark,
                job,
                available_now=given.available_now,
                trigger_seconds=given.trigger_seconds,
                on_batch=done,
                registry=registry,
                on_warning=on_warning,
                should_stop=stopped.is_set,
            )
            if metrics is not None:
                metrics.watch(query)
            query.wait(stopped.is_set)
    except sr.SelectRouteError as error:
        on_warning(str(error))
        return exit_code(error)
    except ModuleNotFoundError as error:
        on_warning(f"{error}: a registry, queues and metrics need pip install 'selectroute[service]'")
        return FAILURE
    return 0


if __name__ == "__main__":
    sys.exit(main())
