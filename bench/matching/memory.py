"""Memory of rules in the mutable index: ``python -m bench.matching.memory WORKLOAD RULES`` prints bytes.

It is the growth of a fresh process, texts included, so that nothing freed before is counted as free of
charge.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

from bench import ROOT
from bench.matching.engines import indexed
from bench.workloads.catalogue import WORKLOADS


def index_bytes(workload: str, rules: int) -> int:
    """Return the bytes that a process of its own grows by when it indexes the rules of a workload."""
    command = [sys.executable, "-m", "bench.matching.memory", workload, str(rules)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout)


def _grown(workload: str, rules: int) -> int:
    made = WORKLOADS[workload]
    warm = indexed(made.texts(1_000))  # what is imported and kept at the first use is not a rule's
    before = resident()
    index = indexed(made.texts(rules))
    gc.collect()
    grown = resident() - before
    assert len(warm) == 1_000 and len(index) == rules
    return grown


def resident() -> int:
    """Return the bytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(_grown(sys.argv[1], int(sys.argv[2])))
