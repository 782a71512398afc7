"""A streaming job whose disk is full: ``python -m tests.crash.programs.streams.full_disk --times 20``.

``selectroute stream run`` as a user runs it; from its n-th write on to the output folder, in which Spark's
checkpoint is, every write of driver, JVM and workers says that there is no space left (see `failing`). It
must end with exit code 1 and one sentence; started again when there is room, it delivers the rest, and
nothing twice. The same with a disk that is full from the moment at which Spark gives a file of its checkpoint
its name: that leaves an empty one.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from tests.crash.programs.failing import Shim, armed, compiled, full_disk, required
from tests.crash.programs.harness import FORMATS, STREAM_RUN, launch, program
from tests.support.world import World

LOGGED = ("metadata", "offsets/0", "commits/0", "offsets/1", "commits/1")
"""Files of Spark's checkpoint."""

FILES, MESSAGES = 6, 10
_WRITES = 95
"""Of such a job, about: one that is done before so many has met none that failed."""


def routed(
    home: Path,
    shim: Shim,
    preloaded: dict[str, str],
    at: int,
    logged: str | None = None,
    table_format: str = "parquet",
) -> bool:
    """Let the `at`-th write fail and all after it, then start again. Raises AssertionError. Returns whether
    a write failed.

    Only writes to a file of Spark's checkpoint count, if one is `logged`.
    """
    world = World(home, table_format=table_format)
    world.input.mkdir(parents=True)
    world.publish(1, low="n < 5", high="n > 6")
    for number in range(FILES):
        world.drop_json(f"{number}.jsonl", *({"properties": {"n": n}} for n in range(MESSAGES)))
    world.output.mkdir()
    checkpoint = world.output / "_checkpoint"
    with armed(shim, at, world.output if logged is None else checkpoint / logged):
        code, said = _run(world, preloaded)
        fired = shim.fired
    if fired:
        sentences = [line for line in said.splitlines() if line.startswith("selectroute: ")]
        assert code == 1 and len(sentences) == 1 and "No space left on device" in sentences[0], said
        assert "Traceback" not in said, said
    if logged is not None:
        assert (checkpoint / logged).read_bytes() == b""
    code, said = _run(world, preloaded)
    assert code == 0, said
    names = [("low", n) for n in range(5)] + [("high", n) for n in range(7, MESSAGES)]
    expected = Counter((f"{number}.jsonl", n, name, 1) for number in range(FILES) for name, n in names)
    assert world.deliveries() == expected, f"write {at}"
    return fired


def _run(world: World, preloaded: dict[str, str]) -> tuple[int, str]:
    """Run the job; return its exit code, and what it said."""
    folders = ["--input", world.input, "--snapshots", world.snapshots, "--output", world.output]
    options = ["--max-files-per-trigger", 2, "--cores", 2, "--table-format", world.table_format]
    log = world.root / "job.log"
    log.unlink(missing_ok=True)
    code = launch(log, *STREAM_RUN, "--available-now", *folders, *options, **preloaded).wait()
    return code, log.read_text()


def run(root: Path, seed: int, times: int, table_format: str) -> Counter[str]:
    """So many jobs. Raises AssertionError, or SystemExit where there is no compiler."""
    preloaded, control = required(compiled(root))
    shim, chance = full_disk(control), Random(seed)
    counts: Counter[str] = Counter()
    for number in range(times):
        at = chance.randrange(1, _WRITES)
        fired = routed(root / f"{number}", shim, preloaded, at, None, table_format)
        counts["full" if fired else "done before"] += 1
        print(f"write {at}: {'full, and gone on with' if fired else 'done before'}", flush=True)
    for number, logged in enumerate(LOGGED, times):
        assert routed(root / f"{number}", shim, preloaded, 1, logged, table_format), logged
        counts["left a file of Spark's empty"] += 1
        print(f"{logged}: empty, and gone on with", flush=True)
    return counts


if __name__ == "__main__":
    program("a streaming job whose disk is full", run, times=10, table_format=FORMATS)
