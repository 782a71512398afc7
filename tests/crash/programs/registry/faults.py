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

import json
import os
import tempfile
from collections import Counter
from functools import partial
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

from selectroute.index.snapshot import Snapshot
from selectroute.index.snapshot_files import revisions
from selectroute.registry.errors import UnavailableError
from selectroute.registry.model import SubscriptionSpec
from selectroute.registry.publisher import RegistryPublisher
from selectroute.registry.registry import Registry
from selectroute.selector.errors import SelectRouteError
from tests.crash.programs.failing import Fault, FileSizeLimit, armed, compiled, in_turn, run_again, shims
from tests.crash.programs.harness import CLEAN, counted, program
from tests.crash.programs.registry.sides import InProcess, OverHttp, live, selectors_of, spec
from tests.crash.programs.serving import PRELOADED, Service
from tests.support.waiting import wait_until

ROWS = {"register": 1, "replace": 1, "import": 60}
"""The operations, and how many subscriptions they make or change."""

TARGET = "target"
"""The subscription that is replaced."""

_DATABASE_STEP, _SNAPSHOT_STEP = 8_192, 1_024
_PUBLISHED_SECONDS = 60.0


def lines(key: str) -> list[str]:
    """An import, of the same subscriptions each time: what it writes does not grow with the database."""
    return [json.dumps({"id": f"i{part}", **spec(key, part)}) for part in range(ROWS["import"])]


def attempt(side: InProcess | OverHttp, operation: str, key: str) -> bool:
    """Make this change, which the label key=<key> tells from others: whether it is done, or refused."""
    try:
        if operation == "register":
            side.keyed(operation, key)
        elif operation == "replace":
            side.change(operation, TARGET, key, side.seen(TARGET))
        else:
            side.import_(lines(key), mode="replace")
    except UnavailableError:
        return False
    return True


def attempt_one(side: Any, fault: Fault, operation: str, folder: Path, at: int) -> tuple[bool, bool]:
    """Let a write of an operation fail: whether it is done, and whether one failed. Raises AssertionError if
    something is wrong.
    """
    key, what = f"{operation}-{at}", f"{operation}, write {at}"
    before = side.revision()
    with armed(fault, at, folder, side.pid):
        done = attempt(side, operation, key)
        seen = len(side.ids(key))  # what can be read while nothing can be written
    rows = ROWS[operation] if done else 0
    assert seen == len(side.ids(key)) == rows, f"{what}: {seen} of {rows} are there"
    assert side.revision() == before + done, f"{what}: another revision"
    # Also after one that was done: its log may not have been cleared up, and so would grow by each turn.
    assert attempt(side, operation, f"{key}-again"), f"{what}: refused though the disk works"
    assert len(side.ids(f"{key}-again")) == ROWS[operation]
    return done, not done or bool(fault.fired)


def check_folder(folder: Path, registry: Registry) -> None:
    """Every revision in the folder is the registry's. Raises AssertionError, SnapshotError."""
    for revision in revisions(folder):
        snapshot = Snapshot.open(folder, revision)
        wanted = selectors_of(registry.export(revision=revision))
        assert live(snapshot) == wanted, f"revision {revision} of the folder is not the registry's"


def publish_one(registry: Registry, fault: Fault, root: Path, first: bool, at: int) -> tuple[bool, bool]:
    """Let a write of a publication fail: of the first one to a folder, or of a change's."""
    folder = root / (f"{fault.name}-{at}" if first else fault.name)
    publisher = None
    if not first:
        publisher = RegistryPublisher(registry, folder)
        publisher.catch_up()
        registry.replace(TARGET, SubscriptionSpec(f"a = {at}"))
    try:
        with armed(fault, at, folder, os.getpid()):
            publisher = publisher or RegistryPublisher(registry, folder)
            done = publisher.catch_up() == registry.revision
    except SelectRouteError as error:
        assert str(error)
        done = False
    check_folder(folder, registry)
    with publisher or RegistryPublisher(registry, folder) as publisher:
        assert publisher.catch_up() == registry.revision, "the next publication does not go on"
    check_folder(folder, registry)
    return done, not done or bool(fault.fired)


def serve_one(side: OverHttp, registry: Registry, fault: Fault, folder: Path, at: int) -> tuple[bool, bool]:
    """Let a write of the publication of a change fail, in a service: it says so, and goes on later."""
    with armed(fault, at, folder, side.pid):
        assert attempt(side, "replace", f"publish-{at}"), "a change does not depend on its publication"
        wait_until(
            lambda: side.is_published() or (fault.fired and "reason" in side.state()),
            _PUBLISHED_SECONDS,
            "any news",
        )
        done = side.is_published()
    wait_until(side.is_published, _PUBLISHED_SECONDS, "publishing goes on when the disk works")
    check_folder(folder, registry)
    return done, bool(fault.fired)


def run(root: Path, seed: int, step: int) -> Counter[str]:
    made = compiled(root)
    if isinstance(made, str):
        print(f"left out, {made}: I/O errors, and a full disk but by a limit", flush=True)
    run_again(made)
    CLEAN.set_forkserver_preload(PRELOADED)
    total: Counter[str] = Counter()
    database, published = root / "database", root / "published"
    temporary = database / "temporary"  # an import's own file is among those that fail
    for folder in (temporary, published):
        folder.mkdir(parents=True)
    get_temp_dir()  # that of multiprocessing stays where it is
    os.environ["TMPDIR"], tempfile.tempdir = str(temporary), None

    def note(side: str, fault: Fault, operation: str, counts: Counter[str]) -> None:
        assert counts, f"{side}, {operation}, {fault.name}: no write failed, so nothing was tried"
        print(f"{side}, {operation}, {fault.name}: {counted(dict(sorted(counts.items())))}", flush=True)
        total.update({f"{side}, {name}": count for name, count in counts.items()})

    for number, fault in enumerate([FileSizeLimit(_DATABASE_STEP), *shims()]):
        urls = [f"sqlite:///{database}/{side}-{number}.db" for side in ("process", "service")]
        for url in urls:
            with Registry.open(url) as registry:
                registry.register(SubscriptionSpec("a = 1"), id=TARGET)
        with Registry.open(urls[0]) as registry:
            for operation in ROWS:
                turn = partial(attempt_one, InProcess(registry), fault, operation, database)
                note(InProcess.name, fault, operation, in_turn(turn, step))
        folder = published / f"service-{number}"
        service = Service(urls[1], root, "--snapshots", str(folder))
        service.start()
        with Registry.open(urls[1]) as registry:
            side = OverHttp(service)
            wait_until(side.is_published, _PUBLISHED_SECONDS, "the first publication")
            for operation in ROWS:
                turn = partial(attempt_one, side, fault, operation, database)
                note(side.name, fault, operation, in_turn(turn, step))
            if not isinstance(fault, FileSizeLimit):  # that would be one for the database as well
                wait_until(side.is_published, _PUBLISHED_SECONDS, "the service publishes what there is")
                turn = partial(serve_one, side, registry, fault, folder)
                note(side.name, fault, "publish", in_turn(turn, step))
        service.stop()
        Registry.open(urls[1]).close()  # which verifies it
    with Registry.open(f"sqlite:///{database}/publish.db") as registry:
        registry.import_(lines("published"))
        registry.register(SubscriptionSpec("a = 1"), id=TARGET)
        for fault in [FileSizeLimit(_SNAPSHOT_STEP), *shims()]:
            for first in (True, False):
                turn = partial(publish_one, registry, fault, published, first)
                name = "publish, the first" if first else "publish"
                note(InProcess.name, fault, name, in_turn(turn, step))
        registry.verify()
    return total


if __name__ == "__main__":
    every = {"type": int, "default": 1, "help": "1 for every write, n for each n-th"}
    program("let every write fail in turn", run, step=every)
