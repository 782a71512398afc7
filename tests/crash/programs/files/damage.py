"""Bits turn and files end too soon: ``python -m tests.crash.programs.files.damage --flips 300``.

Every kind of file that is persisted is damaged, one bit or one truncation at a time, and used again: a
registry's database and its write-ahead log as a crash leaves it, every file of the snapshot folder, and what
the stream keeps beside its output (see `damage_stream`). Each time either a named error comes, or what comes
is what comes without the damage: never another answer, never another delivery.

One thing cannot be seen in a log by itself: that its last transaction, or its end, is missing, as after a
crash before it was written. Then the registry is whole as it was at an earlier revision, and who publishes it
refuses, because the snapshot folder has the later one.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from selectroute.index.snapshot import Snapshot
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.errors import PublishError
from selectroute.registry.model import Idempotency
from selectroute.registry.publisher import RegistryPublisher
from selectroute.registry.registry import Registry
from selectroute.selector.errors import SelectRouteError
from tests.crash.programs.harness import FORMATS, counted, program, start
from tests.crash.programs.registry.sides import live, selectors_of

CHANGES = 40
FOLDER = "snapshots"


def damaged(data: bytes, flips: int, chance: Random) -> Iterator[tuple[str, bytes]]:
    """What becomes of a file's bytes: so many turned bits, and a few truncations; each with its name."""
    for _ in range(flips if data else 0):
        place, bit = chance.randrange(len(data)), chance.randrange(8)
        turned = bytearray(data)
        turned[place] ^= 1 << bit
        yield f"bit {bit} of byte {place}", bytes(turned)
    sizes = {chance.randrange(len(data)) for _ in range(flips // 10 if data else 0)}
    for size in sorted({0, 1, len(data) // 2, len(data) - 1} | sizes):
        if 0 <= size < len(data):
            yield f"cut to {size} bytes", data[:size]


def each_damage(
    folder: Path, path: Path, flips: int, chance: Random, use: Callable[[], bool]
) -> Counter[str]:
    """Damage a file below a folder again and again, `use` the folder, and put it back.

    `use` returns whether an earlier state was noticed; it raises SelectRouteError for damage, and
    AssertionError for a wrong answer. Anything else that it raises is a failure too.
    """
    counts: Counter[str] = Counter()
    for name, data in damaged(path.read_bytes(), flips, chance):
        with put_back(folder):
            # A file of its own: nothing that was opened before may stand in for it.
            path.unlink()
            path.write_bytes(data)
            try:
                counts["noticed by the publisher" if use() else "without effect"] += 1
            except SelectRouteError as error:
                assert str(error), f"{path.name}, {name}: an error without a sentence"
                counts["named"] += 1
            except Exception as error:
                raise AssertionError(f"{path.name}, {name}: {type(error).__name__}: {error}") from error
    return counts


@contextmanager
def put_back(folder: Path) -> Iterator[None]:
    """Let a folder be used, and put it back as it was."""
    whole = folder.with_name(f"{folder.name}.whole")
    shutil.copytree(folder, whole)
    try:
        yield
    finally:
        shutil.rmtree(folder)
        whole.rename(folder)


# ---- a registry


def _write(home: Path, is_killed: bool) -> None:
    """Fill a registry, publish it, and end, or end as a process that is killed."""
    registry = Registry.open(f"sqlite:///{home}/registry.db")
    publisher = RegistryPublisher(registry, home / FOLDER)
    for number in range(CHANGES):
        spec = SubscriptionSpec(f"a = {number}", topic=f"t/{number % 5}", labels={"n": f"{number % 3}"})
        if number % 4 == 3:
            registry.replace(f"s{number - 1}", spec)
        else:
            registry.register(spec, id=f"s{number}", idempotency=Idempotency("me", str(number), "digest"))
        if number in (CHANGES // 2, CHANGES - 1):
            publisher.catch_up()
    if not is_killed:
        publisher.close()
        registry.close()
    os._exit(0)


class Home:
    """A folder with a registry that was closed, or killed, and what it had published, and what both say."""

    def __init__(self, folder: Path, is_killed: bool) -> None:
        self.folder = folder
        self.snapshots = folder / FOLDER
        folder.mkdir()
        writer = start(_write, folder, is_killed)
        writer.join()
        assert writer.exitcode == 0
        with put_back(folder), Registry.open(f"sqlite:///{folder}/registry.db") as registry:
            assert registry.revision == CHANGES
            self.states = [list(registry.export(revision=number)) for number in range(CHANGES + 1)]
            self.log = list(registry.follow_changes(0))
        assert (folder / "registry.db-wal").exists() == is_killed, "there is no log to be damaged"

    def use_registry(self) -> bool:
        """Open the registry: everything is as it was, or as it was at an earlier revision, and that is
        noticed.
        """
        with Registry.open(f"sqlite:///{self.folder}/registry.db") as registry:
            revision = registry.revision
            assert list(registry.follow_changes(0)) == self.log[:revision], "another log"
            assert list(registry.export()) == self.states[revision], "other subscriptions"
            if revision == CHANGES:
                return False
            # Also when it has come as far again.
            while registry.revision < CHANGES + 3:
                try:
                    RegistryPublisher(registry, self.snapshots).close()
                except PublishError:
                    registry.register(SubscriptionSpec("b = 1"))
                    continue
                raise AssertionError(f"the loss of revisions above {revision} was not noticed")
        return True

    def use_snapshots(self) -> bool:
        """Open what is published, and publish one change more."""
        opened = Snapshot.open(self.snapshots)
        assert live(opened) == selectors_of(self.states[CHANGES]), "another snapshot"
        with Registry.open(f"sqlite:///{self.folder}/registry.db", verify=False) as registry:
            registry.register(SubscriptionSpec("b = 1"), id="one-more")
            with RegistryPublisher(registry, self.snapshots) as publisher:
                publisher.catch_up()
            wanted = selectors_of(registry.export())
        assert live(Snapshot.open(self.snapshots)) == wanted, "another snapshot after a change"
        return False


def run_registry(root: Path, flips: int, chance: Random) -> dict[str, Counter[str]]:
    """The database with its log, and the snapshot folder."""
    home, killed = Home(root / "closed", False), Home(root / "killed", True)
    found: dict[str, Counter[str]] = {}
    for kind, each, name in (
        ("database", home, "registry.db"),
        ("database beside its log", killed, "registry.db"),
        ("log", killed, "registry.db-wal"),
    ):
        # They are single files, and large ones.
        found[kind] = each_damage(each.folder, each.folder / name, flips * 2, chance, each.use_registry)
    assert found["log"]["noticed by the publisher"] > flips, "the log can be damaged unnoticed"
    for path in sorted(home.snapshots.rglob("*")):
        if path.is_file() and not path.name.startswith("."):  # those are locks, and empty
            kind = path.relative_to(home.snapshots).parts[0].partition("-")[0]
            counts = each_damage(home.folder, path, flips, chance, home.use_snapshots)
            found[kind] = found.get(kind, Counter()) + counts
    assert {"manifest", "segments", "ids", "registry.json"} <= found.keys()
    return found


def run(root: Path, seed: int, flips: int, table_format: str) -> str:
    chance, total = Random(seed), 0
    kinds = run_registry(root, flips, chance)
    try:
        from tests.crash.programs.files.damage_stream import run_stream
    except ModuleNotFoundError as error:
        print(f"left out, {error}: what the stream keeps", flush=True)
    else:
        kinds |= run_stream(root / "stream", flips, chance, table_format)
    for kind, counts in kinds.items():
        print(f"{kind}: {counted(counts)}", flush=True)
        total += counts.total()
    return f"{total:,} damaged files, none with a wrong answer,"


if __name__ == "__main__":
    program("damage every persisted file", run, flips=300, table_format=FORMATS)
