"""Run a program that routes a stream, and end it at a named step.

``python -m tests.crash.programs.failpoint STEP MOMENT NTH stream run …`` kills its whole process group, with
Spark's JVM, right before or after the n-th time that it, or a worker of Spark's, takes this step. What Spark
itself writes, its log of offsets and that of done batches, is watched for in its checkpoint, so there it is
within a millisecond.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from selectroute.cli import main as command
from selectroute.durable import disk
from selectroute.spark.batch.commits import Commits
from selectroute.spark.sources.files.source import FileBatchInput
from selectroute.spark.sources.frame.source import FrameBatchInput
from selectroute.spark.sources.kafka.source import KafkaBatchInput
from tests.crash.programs.harness import MODULES

BEFORE, AFTER = MOMENTS = ("before", "after")
PUT: Final = "put"
IN_TASKS: Final = (PUT, "begin", "produce", "token", "end")
STEPS: Final = ("offsets", "pin", "plan", *IN_TASKS, "match", "commit", "publish", "return")
"""Of a batch: Spark plans it; pin of the revision, and of the plan; in each task put to queues, begin as the
only producer, send records, write the commit token, commit the transaction; all tasks; commit; publish; give
it back to Spark, which notes it as done.
"""
_WORKERS: Final = Path(__file__).parent / "workers"


def fail_at(step: str, moment: str, nth: int, output: Path) -> None:
    """End this process group at the n-th time that a step is taken, from now on."""
    checkpoint = output / "_checkpoint"
    if step == "offsets":
        # Spark writes each entry of its logs under a hidden name, and renames it.
        _watch(checkpoint / "offsets", nth, hidden=moment == BEFORE)
    elif step == "return" and moment == AFTER:
        _watch(checkpoint / "commits", nth, hidden=False)
    elif step in IN_TASKS:
        counter = output.parent / f"met-{uuid.uuid4().hex}"
        os.environ["SELECTROUTE_WORKER_FAILPOINT"] = f"{step} {moment} {nth} {counter} {os.getpgid(0)}"
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_WORKERS), MODULES])
    else:
        _patch(step, moment, nth)


def _patch(step: str, moment: str, nth: int) -> None:
    met, counting = itertools.count(1), threading.Lock()

    def replace(owner: Any, name: str, is_it: Callable[..., bool] = lambda *_: True) -> None:
        real = getattr(owner, name)

        def failing(*given: Any, **named: Any) -> Any:
            with counting:  # tables are published by several threads
                is_nth = is_it(*given) and next(met) == nth
            if is_nth and moment == BEFORE:
                _kill()
            done = real(*given, **named)
            if is_nth:
                _kill()
            return done

        setattr(owner, name, failing)

    if step in ("pin", "plan", "commit"):
        folder = "_commits" if step == "commit" else "pins"
        is_plan = step == "plan"

        def written(path: Path, _: Any) -> bool:
            return path.parent.name == folder and path.name.endswith(".plan.json") == is_plan

        replace(disk, "replace_bytes", written)
    elif step == "match":
        for owner in (KafkaBatchInput, FileBatchInput, FrameBatchInput):
            replace(owner, "route")
    elif step == "publish":
        # A folder of files is renamed; a table has a transaction.
        replace(disk, "rename")
        with suppress(ImportError):  # without the extra `delta`
            from selectroute.spark.tables.delta_table import OutcomeTable

            replace(OutcomeTable, "append")
    elif step == "return":
        # The last that is done of a batch.
        replace(Commits, "_account")
    else:
        raise SystemExit(f"no step {step}")


def _watch(folder: Path, nth: int, hidden: bool) -> None:
    """End this process when the n-th new entry of a log of Spark is there, or is being written.

    One that was written while nobody looked counts, too: what is to be met at an instant is met late then.
    """

    def entries() -> set[str]:
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return set()
        being = {name.split(".")[1] for name in names if hidden and name.endswith(".tmp")}
        return {name for name in (*names, *being) if name.isdecimal()}

    seen = entries()
    known = len(seen)

    def watch() -> None:
        while len(seen) < known + nth:
            time.sleep(0.001)
            seen.update(entries())
        _kill()

    threading.Thread(target=watch, daemon=True).start()


def _kill() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise AssertionError


if __name__ == "__main__":
    step, moment, nth, *arguments = sys.argv[1:]
    fail_at(step, moment, int(nth), Path(arguments[arguments.index("--output") + 1]))
    sys.argv = ["selectroute", *arguments]
    command()
