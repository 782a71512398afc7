"""Memory of a message: ``python -m bench.queues.memory KIND MESSAGES`` prints the bytes.

It is the growth of a fresh process by all messages of workload Q, less their bodies.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench import ROOT
from bench.definition import Size
from bench.matching.memory import resident
from bench.measure import Sample
from bench.queues.engines import Queues
from bench.queues.queued import BODY_BYTES
from bench.workloads.oracle import Expected

NAME: Final = "queue-memory"


def measured(kinds: Iterable[str], size: Size) -> list[Sample]:
    """Measure each kind of holder in a process of its own."""
    taken = []
    for kind in kinds:
        command = [sys.executable, "-m", "bench.queues.memory", kind, str(size.rules)]
        found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
        each = int(found) / size.rules
        taken.append(Sample(NAME, kind, size.workload, size.rules, 0, 0, 0.0, each))
    return taken


def _grown(kind: str, messages: int) -> int:
    with TemporaryDirectory(prefix="selectroute-bench-") as scratch:
        # What is imported and kept at the first use is not a message's.
        warm = Queues(Size("Q", 100, Expected(0, 0), 0), Path(scratch))
        warm.holder(kind)
        before = resident()
        made = Queues(Size("Q", messages, Expected(0, 0), 0), Path(scratch))
        made.holder(kind)
        gc.collect()
        grown = resident() - before - made.holder(kind).own_bytes
        return grown - messages * BODY_BYTES


if __name__ == "__main__":
    print(_grown(sys.argv[1], int(sys.argv[2])))
