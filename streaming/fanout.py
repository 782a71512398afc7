"""Fan message files out to their subscribers: a Structured Streaming application, read top to bottom.

    python streaming/fanout.py --input messages --snapshots snapshots --output out
    spark-submit --master spark://host:7077 streaming/fanout.py --input … --snapshots … --output …

The logic is `selectroute.spark.query`; what it promises is in the README beside this file.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading

from selectroute import SelectRouteError
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
from the next batch on. Ctrl-C or SIGTERM: the batch that runs is finished; start again to go on.
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
        shown = f" (default: {default})" if default is not None else ""
        parser.add_argument(f"--{name}", default=value, required=value is None, help=help + shown, **more)  # type: ignore[arg-type]

    option("input", "folder in which message files arrive", metavar="DIR")
    option("snapshots", "folder in which snapshots are published", metavar="DIR")
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
    return parser.parse_args()


def report(batch: BatchReport) -> None:
    """Say on standard error what a batch did."""
    counts, seconds = batch.counts, sum(batch.seconds.values())
    done = "skipped, it was committed before" if batch.skipped else f"{seconds:.2f} s"
    print(
        f"batch {batch.batch}  revision {batch.revision}  {batch.files} files  {counts.messages} messages: "
        f"{counts.routed} routed, {counts.unrouted} unrouted, {counts.dead_lettered} dead letters; "
        f"{counts.deliveries} deliveries, {counts.refused} refused  ({done})",
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    """Run the application; return its exit code."""
    given = arguments()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        job = Job.of(
            given.input,
            given.snapshots,
            given.output,
            None if given.checkpoint == "OUTPUT/_checkpoint" else given.checkpoint,
            file_format=given.format,
            max_files=given.max_files_per_trigger,
            unrouted=given.unrouted,
            max_message_bytes=given.max_message_bytes,
        )
        check(job)
        spark = local_session("selectroute fan-out", given.cores or None, log_level="OFF")
        query = start_fanout(
            spark,
            job,
            available_now=given.available_now,
            trigger_seconds=given.trigger_seconds,
            on_batch=report,
        )
        query.wait(stopped.is_set)
    except SelectRouteError as error:
        print(f"fanout: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
