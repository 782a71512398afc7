"""Fan message files out to their subscribers: a Structured Streaming application, read top to bottom.

    python streaming/fanout.py --input messages --snapshots snapshots --output out
    python streaming/fanout.py --input messages --registry sqlite:///subscriptions.db --output out
    spark-submit --master spark://host:7077 streaming/fanout.py --input … --snapshots … --output …

The logic is `selectroute.spark.query`; what it promises is in the README beside this file.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import AbstractContextManager, nullcontext

import selectroute as sr
from selectroute.spark import BatchReport, Job, check, local_session, start_fanout

HELP = """\
Every file that appears in the input folder is routed: each message to each subscription whose topic filter
and selector it satisfies. Outputs, in Parquet, a folder batch=<n> for each batch:

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
SELECTROUTE_TOKEN. Ctrl-C or SIGTERM: the batch that runs is finished; start again to go on.
Every option can also be set in the environment: --max-files-per-trigger is SELECTROUTE_MAX_FILES_PER_TRIGGER.
"""


def arguments() -> argparse.Namespace:
    """Read the command line; what is not given comes from SELECTROUTE_* in the environment."""
    parser = argparse.ArgumentParser(
        prog="fanout.py",
        description="Route a stream of message files to every matching subscription.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def option(name: str, help: str, default: str | None = None, **more: object) -> None:
        value = os.environ.get("SELECTROUTE_" + name.upper().replace("-", "_"), default)
        shown = f" (default: {default})" if default else ""
        parser.add_argument(f"--{name}", default=value, required=value is None, help=help + shown, **more)  # type: ignore[arg-type]

    option("input", "folder in which message files arrive", metavar="DIR")
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
    option("max-files-per-trigger", "files a batch takes at most", "16", metavar="N", type=int)
    option("max-message-bytes", "a longer JSON line is a dead letter", str(4 << 20), metavar="N", type=int)
    option("trigger-seconds", "look for new files so often", "1", metavar="S", type=float)
    option("cores", "tasks at once; 0 is all (spark-submit: its own)", "0", metavar="N", type=int)
    now = os.environ.get("SELECTROUTE_AVAILABLE_NOW", "").lower() in ("1", "true", "yes")
    parser.add_argument(
        "--available-now", action="store_true", default=now, help="route what is there, and end"
    )
    given = parser.parse_args()
    if not given.snapshots and (not given.registry or given.registry.startswith(("http://", "https://"))):
        parser.error("--snapshots is needed: a folder; only a registry's database says which it is")
    return given


def report(batch: BatchReport) -> None:
    """Say on standard error what a batch did."""
    counts, seconds = batch.counts, sum(batch.seconds.values())
    for sentence in batch.missing:
        warn(f"backfill {batch.batch} is not whole: {sentence}")
    done = "skipped, it was committed before" if batch.skipped else f"{seconds:.2f} s"
    kind = "batch" if batch.batch >= 0 else "backfill"
    print(
        f"{kind} {batch.batch}  revision {batch.revision}  {batch.files} files  "
        f"{counts.messages} messages: {counts.routed} routed, {counts.unrouted} unrouted, "
        f"{counts.dead_lettered} dead letters; {counts.deliveries} deliveries, "
        f"{counts.refused} refused  ({done})",
        file=sys.stderr,
        flush=True,
    )


def warn(sentence: str) -> None:
    """Say something on standard error."""
    print(f"fanout: {sentence}", file=sys.stderr, flush=True)


def opened(url: str) -> AbstractContextManager[sr.Registry | None]:
    """Open the registry, if there is one."""
    if not url:
        return nullcontext()
    # It is the publisher's to verify it, and nobody's to make an empty one by a mistyped name.
    return sr.Registry.open(url, create=False, verify=False, token=os.environ.get("SELECTROUTE_TOKEN"))


def main() -> int:
    """Run the application; return its exit code."""
    given = arguments()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        with opened(given.registry) as registry:
            job = Job.of(
                given.input,
                given.snapshots or registry.snapshots_folder,  # type: ignore[union-attr]  # see arguments
                given.output,
                None if given.checkpoint == "OUTPUT/_checkpoint" else given.checkpoint,
                file_format=given.format,
                max_files=given.max_files_per_trigger,
                unrouted=given.unrouted,
                max_message_bytes=given.max_message_bytes,
            )
            check(job, registry)
            spark = local_session("selectroute fan-out", given.cores or None, log_level="OFF")
            query = start_fanout(
                spark,
                job,
                available_now=given.available_now,
                trigger_seconds=given.trigger_seconds,
                on_batch=report,
                registry=registry,
                on_warning=warn,
            )
            query.wait(stopped.is_set)
    except sr.SelectRouteError as error:
        warn(str(error))
        return 1
    except ModuleNotFoundError as error:
        warn(f"{error}: a registry needs pip install 'selectroute[service]'")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
