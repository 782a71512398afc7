"""Every write of an operation fails in turn: ``python -m tests.crash.programs.registry.faults``.

The n-th write fails, n = 1, 2, 3 …, until the operation is done without having met a failure. The disk is
full, by a limit of the system and by a shim, or a write, a sync or a rename gives EIO, once or for good: see
`failing`. Operations are register, replace, import and publish, in process and through
`selectroute serve`. Each time

- what was refused left nothing, what was done is there as a whole, and everything can still be read;
- it is refused by a named error, over HTTP by 503 with Retry-After, and done when it is asked again later;
- a revision of the snapshot folder is the registry's at that revision, and the next publication goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from selectroute.index.folder.manifest import revisions
from selectroute.index.snapshot import Snapshot
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.publisher import RegistryPublisher
from selectroute.registry.registry import Registry
from selectroute.selector.errors import SelectRouteError
from tests.crash.programs.command import ROOT, command, wait_until
from tests.crash.programs.failing import VARIABLE, Fault, FileSizeLimit, compiled, faults
from tests.crash.programs.long_run import counted, long_run
from tests.crash.programs.registry.sides import ROWS, TARGET, InProcess, OverHttp, Side, lines

_DATABASE_STEP, _SNAPSHOT_STEP = 8_192, 1_024
_PUBLISHED_SECONDS = 60.0
_MOST = 5_000


def fail_in_turn(side: Side, fault: Fault, operation: str, folder: Path, step: int) -> Counter[str]:
    """Let each write of an operation fail until it is done. Raises AssertionError if something is wrong."""
    counts: Counter[str] = Counter()
    for at in range(1, _MOST, step):
        key = f"{operation}-{at}"
        before = side.revision()
        fault.arm(at, folder, side.pid)
        try:
            done = side.attempt(operation, key)
            seen = side.found(key)  # what can be read while nothing can be written
        finally:
            fault.clear()
        rows = ROWS[operation] if done else 0
        assert seen == side.found(key) == rows, f"{operation}, write {at}: {seen} of {rows} are there"
        assert side.revision() == before + done, f"{operation}, write {at}: another revision"
        if done and not fault.fired:
            return counts
        counts["done all the same" if done else "refused"] += 1
        # Also after one that was done: its log may not have been cleared up, and so would grow by each turn.
        again = f"{key}-again"
        assert side.attempt(operation, again), f"{operation}, write {at}: refused though the disk works"
        assert side.found(again) == ROWS[operation]
    raise AssertionError(f"{operation} was never done")


def check_folder(folder: Path, registry: Registry) -> None:
    """Every revision in the folder is the registry's. Raises AssertionError, SnapshotError."""
    for revision in revisions(folder):
        snapshot = Snapshot.open(folder, revision)
        dead = snapshot.dead
        rows = snapshot.subscriptions.select(["id", "selector"]).to_pylist()
        live = {row["id"]: row["selector"] for at, row in enumerate(rows) if dead is None or not dead[at]}
        wanted = {one["id"]: one["selector"] for one in map(json.loads, registry.export(revision=revision))}
        assert live == wanted, f"revision {revision} of the folder is not the registry's"


def publish_in_turn(registry: Registry, fault: Fault, root: Path, step: int, first: bool) -> Counter[str]:
    """Let each write of a publication fail: of the first one to a folder, or of a change's."""
    counts: Counter[str] = Counter()
    for at in range(1, _MOST, step):
        folder = root / (f"{fault.name}-{at}" if first else fault.name)
        publisher = None
        if not first:
            publisher = RegistryPublisher(registry, folder)
            publisher.catch_up()
            registry.replace(TARGET, SubscriptionSpec(f"a = {at}"))
        fault.arm(at, folder, os.getpid())
        try:
            publisher = publisher or RegistryPublisher(registry, folder)
            done = publisher.catch_up() == registry.revision
        except SelectRouteError as error:
            assert str(error)
            done = False
        finally:
            fault.clear()
        check_folder(folder, registry)
        publisher = publisher or RegistryPublisher(registry, folder)
        with publisher:
            assert publisher.catch_up() == registry.revision, "the next publication does not go on"
        check_folder(folder, registry)
        if done and not fault.fired:
            return counts
        counts["done all the same" if done else "refused"] += 1
    raise AssertionError("it was never published")


def serve_in_turn(side: OverHttp, registry: Registry, fault: Fault, folder: Path, step: int) -> Counter[str]:
    """Let each write of the publication of a change fail, in a service: it says so, and goes on later."""
    counts: Counter[str] = Counter()

    wait_until(side.is_published, _PUBLISHED_SECONDS, "the service publishes what there is")
    for at in range(1, _MOST, step):
        fault.arm(at, folder, side.pid)
        try:
            assert side.attempt("replace", f"publish-{at}"), "a change does not depend on its publication"
            wait_until(
                lambda: side.is_published() or (fault.fired and "reason" in side.state()),
                _PUBLISHED_SECONDS,
                "any news",
            )
            done = side.is_published()
        finally:
            fault.clear()
        wait_until(side.is_published, _PUBLISHED_SECONDS, "publishing goes on when the disk works")
        check_folder(folder, registry)
        if not fault.fired:
            return counts
        counts["done all the same" if done else "refused"] += 1
    raise AssertionError("it was never published")


def run(root: Path, control: Path | None, step: int) -> Counter[str]:
    """Everything, in folders below `root`, which is the process's folder for temporary files too."""
    total: Counter[str] = Counter()
    database, published = root / "database", root / "published"
    published.mkdir()

    def note(side: str, fault: Fault, operation: str, counts: Counter[str]) -> None:
        assert counts, f"{side}, {operation}, {fault.name}: no write failed, so nothing was tried"
        shown = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        print(f"{side}, {operation}, {fault.name}: {shown}", flush=True)
        total.update({f"{side}, {name}": count for name, count in counts.items()})

    for number, fault in enumerate(faults(control, _DATABASE_STEP)):
        url = f"sqlite:///{database}/process-{number}.db"
        with Registry.open(url) as registry:
            registry.register(SubscriptionSpec("a = 1"), id=TARGET)
            for operation in ROWS:
                counts = fail_in_turn(InProcess(registry), fault, operation, database, step)
                note(InProcess.name, fault, operation, counts)
        url = f"sqlite:///{database}/service-{number}.db"
        with Registry.open(url) as registry:
            registry.register(SubscriptionSpec("a = 1"), id=TARGET)
        folder = published / f"service-{number}"
        with command(url, root, "--snapshots", str(folder)) as service, Registry.open(url) as registry:
            side = OverHttp(service)
            wait_until(side.is_published, _PUBLISHED_SECONDS, "the first publication")
            for operation in ROWS:
                note(side.name, fault, operation, fail_in_turn(side, fault, operation, database, step))
            if not isinstance(fault, FileSizeLimit):  # that would be one for the database as well
                note(side.name, fault, "publish", serve_in_turn(side, registry, fault, folder, step))
            side.close()
        Registry.open(url).close()  # which verifies it
    with Registry.open(f"sqlite:///{database}/publish.db") as registry:
        registry.import_(lines("published"))
        registry.register(SubscriptionSpec("a = 1"), id=TARGET)
        for fault in faults(control, _SNAPSHOT_STEP):
            for first in (True, False):
                counts = publish_in_turn(registry, fault, published, step, first)
                note(InProcess.name, fault, "publish, the first" if first else "publish", counts)
        registry.verify()
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description="let every write fail in turn")
    parser.add_argument("--step", type=int, default=1, help="1 for every write, n for each n-th")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside is not None:  # in the process that has the shim
        control = os.environ.get(VARIABLE)
        started = time.monotonic()
        counts = run(given.inside, Path(control) if control else None, given.step)
        print(f"{counted(counts)} in {time.monotonic() - started:.0f} s: all held")
        return
    with long_run() as frame:
        root = frame.folder
        temporary = root / "database" / "temporary"  # an import's own file is among those that fail
        temporary.mkdir(parents=True)
        made = compiled(root)
        if isinstance(made, str):
            print(f"left out, {made}: I/O errors, and a full disk but by a limit", flush=True)
        more = {} if isinstance(made, str) else made[0]
        again = [sys.executable, "-m", "tests.crash.programs.registry.faults"]
        again += ["--inside", str(root), "--step", str(given.step)]
        environment = {**os.environ, **more, "TMPDIR": str(temporary)}
        sys.exit(subprocess.run(again, cwd=ROOT, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
