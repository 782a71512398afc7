"""Minimal Structured Streaming application that fans messages out to their subscribers.

    spark-submit --master spark://host:7077 streaming/fanout.py --input … --snapshots … --output …

It is an example for applications of your own. `selectroute stream run` has everything else: Kafka, queues, a
registry, metrics, and Ctrl-C in each phase; `submit.py` in this folder is that command for `spark-submit`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

import selectroute as sr
from selectroute.spark import BatchReport, Job, check, local_session, start_fanout


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Route message files to every matching subscription.")
    parser.add_argument("--input", required=True, help="folder that complete message files are moved into")
    parser.add_argument("--snapshots", required=True, help="folder in which snapshots are published")
    parser.add_argument("--output", required=True, help="folder for the outputs, of this job only")
    parser.add_argument("--trigger-seconds", type=float, default=1.0, help="interval between batches")
    parser.add_argument("--available-now", action="store_true", help="route the files that exist, then exit")
    return parser.parse_args()


def report(batch: BatchReport) -> None:
    """Print the counts of a batch to standard error."""
    counts = batch.counts
    print(
        f"batch {batch.batch}  {counts.messages} messages: {counts.routed} routed",
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    """Run the application; return its exit code."""
    given = arguments()
    stopped = threading.Event()
    try:
        job = Job.of(given.input, given.snapshots, given.output)
        check(job)  # before Spark is started, which takes seconds
        spark = local_session("selectroute fan-out", log_level="OFF")
        # After Spark, whose driver installs a SIGINT handler of its own. The running batch is finished.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        query = start_fanout(
            spark,
            job,
            available_now=given.available_now,
            trigger_seconds=given.trigger_seconds,
            on_batch=report,
            on_warning=lambda sentence: print(sentence, file=sys.stderr, flush=True),
            should_stop=stopped.is_set,
        )
        query.wait(stopped.is_set)
    except sr.SelectRouteError as error:
        print(f"fanout: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
