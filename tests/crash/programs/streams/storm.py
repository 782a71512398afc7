"""A storm of selector changes while messages flow: ``python -m tests.crash.programs.streams.storm``.

A registry, a publisher in a process of its own, several clients that change subscriptions, and
``selectroute stream run`` as a user runs it, all at once; the publisher and the stream are killed (SIGKILL)
now and then and started again. Changes are spread over the messages. Everything that clients and messages do
is made from the seed; which revision meets which batch is not. Then, by the registry's log and the files,

- every message file is in exactly one batch of the stream, and every message in its accounts;
- the deliveries of a batch are those of the reference evaluator under the subscriptions that were active at
  the revision in the batch's pin, and carry that revision: each message is judged by exactly one;
- revisions never go back from batch to batch, and the registry's ``effective_from`` of each revision is the
  first batch that was pinned to it or a later one;
- a backfill gives subscriptions what they missed of batches: by the reference under its own revision, at
  which they are active. Nobody gets a message twice, and whoever was resumed from last-processed and is still
  there gets everything from between pause and resume.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import selectroute as sr
from selectroute.index.specification import SubscriptionSpec, SubscriptionStatus
from selectroute.registry.model import Operation, Subscription
from selectroute.registry.publisher import RegistryPublisher
from selectroute.topics import TopicFilter
from tests.crash.programs.harness import FORMATS, STREAM_RUN, end_of, kill, launch, program, sqlite_in, start
from tests.crash.programs.serving import Threads
from tests.support.outcomes import check_pins, commits_of, published_files
from tests.support.waiting import wait_until

KINDS = 2_000
"""Different messages: each selector is judged by the reference on each of them once."""

BEGINNING = 60
"""Subscriptions before the first message."""

CLIENTS = 4
WAIT_SECONDS = 600.0
"""After so long without a batch the storm has failed."""

Rows = dict[str, npt.NDArray[np.int64]]
"""Subscription → its messages of a file, ascending; none without any."""

_ONE_A_BATCH = ("--max-files-per-trigger", "1", "--trigger-seconds", "0")


class Storm:
    """One run in a folder of its own."""

    def __init__(self, root: Path, seed: int, table_format: str = "parquet", **numbers: int) -> None:
        self.folder, self.seed, self.table_format = root, seed, table_format
        self.changes, self.messages = numbers["changes"], numbers["messages"]
        self.files, self.kills = numbers["files"], numbers["kills"]
        self.restarts = 0
        self.url = sqlite_in(root)
        self.input, self.output = root / "in", root / "out"
        self.registry = sr.Registry.open(self.url)
        self.ending = threading.Event()

    def write_messages(self) -> None:
        self.input.mkdir()
        table = kinds(self.seed)
        draw = np.random.default_rng(self.seed)
        share = self.messages // self.files
        for number in range(self.files):
            rows = share if number else self.messages - share * (self.files - 1)
            self._write(f"{number:05}", table.take(pa.array(draw.integers(0, KINDS, rows))))

    def _write(self, name: str, table: pa.Table) -> None:
        pq.write_table(table, self.input / f".{name}.parquet")
        (self.input / f".{name}.parquet").rename(self.input / f"{name}.parquet")

    def progress(self) -> float:
        return sum(path.stem.isdigit() for path in (self.output / "_commits").glob("*.json")) / self.files

    def run_client(self, client: Client, number: int) -> None:
        """Make this client's share of the changes, spread over the stream."""
        for turn in range(number, self.changes, CLIENTS):
            while self.progress() < turn / self.changes and not self.ending.is_set():
                time.sleep(0.02)
            client.change()

    def run(self) -> Counter[str]:
        """Let it blow over, then check everything."""
        chance = Random(self.seed)
        several = [Client(self.registry, Random(self.seed * 1_000 + number)) for number in range(CLIENTS)]
        for turn in range(BEGINNING):
            several[turn % CLIENTS].add()
        self.write_messages()
        publisher, clients = self._publisher(), Threads()
        for number, client in enumerate(several):
            clients.start(self.run_client, client, number)
        kills = sorted(chance.uniform(0.1, 0.9) for _ in range(2 * self.kills))
        stream = self._stream(*_ONE_A_BATCH)
        last, since = -1.0, time.monotonic()
        try:
            while (done := self.progress()) < 1.0 or clients.go_on():
                if done > last:
                    last, since = done, time.monotonic()
                assert time.monotonic() - since < WAIT_SECONDS, f"nothing since {done:.0%}"
                if kills and done >= kills[0]:
                    kills.pop(0)
                    self.restarts += 1
                    if len(kills) % 2:
                        kill(stream)
                        stream = self._stream(*_ONE_A_BATCH)
                    else:
                        kill(publisher)
                        publisher = self._publisher()
                assert stream.poll() is None, f"the stream ended: {self._said()}"
                time.sleep(0.05)
        finally:
            self.ending.set()
            stream.terminate()
            stream.wait(WAIT_SECONDS)
        clients.join()
        self._calm_down(publisher)
        counts = Check(self.registry, self.input, self.output, kinds(self.seed)).run()
        return counts + Counter(kills=self.restarts)

    def _calm_down(self, publisher: Any) -> None:
        """Resume all who are paused, and let the stream give them what they missed."""
        while paused := self.registry.list(status="paused", limit=1_000).items:
            for subscription in paused:
                self.registry.resume(subscription.id, from_="last-processed")
        publisher.terminate()
        publisher.join()
        with RegistryPublisher(self.registry) as last:
            last.catch_up()
        self._write("last", kinds(self.seed))  # so that the last revision has a batch, too
        assert self._stream("--available-now").wait(WAIT_SECONDS) == 0, self._said()

    def _publisher(self) -> Any:
        process = start(follow, self.url)
        folder = self.registry.snapshots_folder.path
        wait_until(lambda: any(folder.glob("manifest-*.json")) or not process.is_alive(), 300, "a snapshot")
        assert process.is_alive()
        return process

    def _stream(self, *options: str) -> subprocess.Popen[bytes]:
        command = [*STREAM_RUN, "--cores=2", "--compact-every=3", f"--table-format={self.table_format}"]
        folders = ["--input", self.input, "--output", self.output, "--registry", self.url]
        return launch(self.folder / "stream.log", *command, *options, *folders)

    def _said(self) -> str:
        return end_of(self.folder / "stream.log")


class Client:
    """Changes subscriptions of its own, each time for real: none of the others' calls meet it."""

    def __init__(self, registry: sr.Registry, chance: Random) -> None:
        self.registry = registry
        self.chance = chance
        self.active: list[str] = []
        self.paused: list[str] = []

    def add(self) -> None:
        self.active.append(self.registry.register(drawn(self.chance)).id)

    def change(self) -> None:
        """Make one change, or several as one revision."""
        kinds = ["add", "replace", "pause", "remove", "several"] if len(self.active) > 3 else ["add"]
        kind = self.chance.choice([*kinds, "resume", "resume"] if self.paused else kinds)
        if kind == "add":
            self.add()
        elif kind == "replace":
            self.registry.replace(self.chance.choice(self.active + self.paused), drawn(self.chance))
        elif kind == "pause":
            self.paused.append(self._drawn(self.active))
            self.registry.pause(self.paused[-1])
        elif kind == "remove":
            self.registry.remove(self._drawn(self.chance.choice([self.active, self.paused or self.active])))
        elif kind == "resume":
            self.active.append(self._drawn(self.paused))
            since = "latest" if self.chance.random() < 0.2 else "last-processed"
            self.registry.resume(self.active[-1], from_=since)
        else:
            self._several()

    def _several(self) -> None:
        gone, stopped = self._drawn(self.active), self._drawn(self.active)
        added = Operation("add", spec=drawn(self.chance))
        done = self.registry.apply([Operation("remove", gone), added, Operation("pause", stopped)])
        self.active.append(done.subscriptions[1].id)
        self.paused.append(stopped)

    def _drawn(self, ids: list[str]) -> str:
        return ids.pop(self.chance.randrange(len(ids)))


def drawn(chance: Random) -> SubscriptionSpec:
    """Draw a narrow selector of one of a few shapes over what the messages have."""
    type_, color = f"t{chance.randrange(20)}", f"c{chance.randrange(5)}"
    weight, shape = chance.randrange(1_000), chance.randrange(5)
    text = (
        f"JMSType = '{type_}' AND weight > {weight}",
        f"JMSType = '{type_}' AND color = '{color}'",
        f"color = '{color}' AND weight BETWEEN {weight} AND {weight + 40}",
        f"JMSType IN ('{type_}', 't0') AND note LIKE '%{weight % 10}{weight // 100}%'",
        f"JMSType = '{type_}' AND (price IS NULL OR NOT price < {weight / 10})",
    )[shape]
    topic = chance.choice([None, None, "cars/#", "cars/+/eu", f"+/{color}/eu"])
    return SubscriptionSpec(text, topic)


def follow(url: str) -> None:
    """Publish a registry's revisions until the process is ended."""
    deadline = time.monotonic() + 60
    with sr.Registry.open(url, verify=False) as registry:
        while True:
            try:
                publisher = RegistryPublisher(registry)
                break
            except sr.SelectRouteError:  # the one before is being ended
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        publisher.follow(threading.Event())


def kinds(seed: int) -> pa.Table:
    """The different messages, in the columns of a message file; ``kind`` is read by no selector."""
    draw = np.random.default_rng(seed)
    numbers = np.arange(KINDS)
    return pa.table(
        {
            "kind": pa.array(numbers, pa.int32()),
            "JMSType": [f"t{one}" for one in draw.integers(0, 20, KINDS)],
            "color": [f"c{one}" for one in draw.integers(0, 5, KINDS)],
            "weight": pa.array(draw.integers(0, 1_040, KINDS), pa.int32()),
            "price": pa.array(draw.random(KINDS) * 100, mask=draw.random(KINDS) < 0.2),
            "note": [f"{one:x}" for one in draw.integers(0, 1 << 40, KINDS)],
            "@topic": [
                f"{('cars', 'vans')[a]}/c{b}/{('eu', 'us')[c]}"
                for a, b, c in draw.integers(0, (2, 5, 2), (KINDS, 3))
            ],
        }
    )


class Check:
    """What must hold after a storm. Raises AssertionError."""

    def __init__(self, registry: sr.Registry, input: Path, output: Path, messages: pa.Table) -> None:
        self.registry, self.output = registry, output
        self.counts: Counter[str] = Counter()
        self.log = list(registry.follow_changes(0))
        self.commits = commits_of(output)
        self.live = sorted(number for number in self.commits if number >= 0)
        self.filled = sorted((number for number in self.commits if number < 0), reverse=True)
        paths = input.glob("*.parquet")
        self.kind = {path.name: pq.read_table(path, columns=["kind"])["kind"].to_numpy() for path in paths}
        self.table: pa.Table | None = None
        self._known: dict[tuple[str, str | None], npt.NDArray[np.bool_]] = {}
        self._messages = [_message(row) for row in messages.to_pylist()]

    def run(self) -> Counter[str]:
        self.counts["changes"] = len(self.log)
        self._check_files()
        self._check_batches()
        self._check_reported()
        self._check_backfills()
        return self.counts

    def _check_files(self) -> None:
        seen = Counter(name for batch in self.live for name in self.commits[batch]["inputs"]["sizes"])
        assert seen == Counter(list(self.kind)), "each file in one batch"
        assert self.live == list(range(len(self.live)))
        counts = [self.commits[batch]["counts"] for batch in self.live]
        assert sum(one["messages"] for one in counts) == sum(map(len, self.kind.values()))
        assert not any(one["dead_lettered"] or one["refused"] for one in counts)
        self.counts["messages"] = sum(one["messages"] for one in counts)

    def _check_batches(self) -> None:
        states = self._states({self.commits[batch]["revision"] for batch in self.live})
        check_pins(self.output, {batch: self.commits[batch] for batch in self.live})
        for batch in self.live:
            commit = self.commits[batch]
            sources = list(commit["inputs"]["sizes"])
            self.counts["deliveries"] += self._check_deliveries(batch, sources, states[commit["revision"]])
        self.counts["batches"] = len(self.live)
        self.counts["revisions"] = len(states)

    def _check_reported(self) -> None:
        pinned = [(self.commits[batch]["revision"], batch) for batch in self.live]
        for revision in {change.revision for change in self.log}:
            expected = next((batch for at, batch in pinned if at >= revision), None)
            told = [one.batch for one in self.registry.streams.effective_from(revision)]
            assert told == ([] if expected is None else [expected]), (revision, told, expected)
            self.counts["cut-offs"] += 1

    def _check_backfills(self) -> None:
        given: Counter[tuple[str, int]] = Counter()
        states = self._states({self.commits[number]["revision"] for number in self.filled})
        for number in self.filled:
            commit = self.commits[number]
            active = states[commit["revision"]]
            record = commit["backfill"]
            assert not record["missing"] and set(record["subscriptions"]) <= set(active), number
            chosen = {id: active[id] for id in record["subscriptions"]}
            sources = [name for batch in record["batches"] for name in self.commits[batch]["inputs"]["sizes"]]
            self.counts["deliveries of backfills"] += self._check_deliveries(number, sources, chosen)
            for id in chosen:
                given.update((id, batch) for batch in record["batches"])
        owed, may_be = self._owed()
        assert set(given.values()) <= {1}, "nobody gets a batch's messages twice"
        assert owed <= set(given) <= owed | may_be, (owed - set(given), set(given) - owed - may_be)
        self.counts["backfills"] = len(self.filled)
        self.counts["pairs of subscription and batch owed and given once"] = len(given)

    def _owed(self) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
        """(subscription, batch) that must have been made good, and those of who was removed since: may be."""
        owed: set[tuple[str, int]] = set()
        may_be: set[tuple[str, int]] = set()
        paused: dict[str, int] = {}
        for change in self.log:
            if change.op == "pause":
                paused[change.id] = change.revision
            elif change.op == "resume":
                since = paused.pop(change.id)
                if change.resume_from == "last-processed":
                    at = ((self.commits[batch]["revision"], batch) for batch in self.live)
                    owed |= {(change.id, batch) for pin, batch in at if since <= pin < change.revision}
            elif change.op == "remove":
                paused.pop(change.id, None)
                gone = {pair for pair in owed if pair[0] == change.id}
                owed -= gone
                may_be |= gone
        return owed, may_be

    def _states(self, revisions: set[int]) -> dict[int, dict[str, Subscription]]:
        states: dict[int, dict[str, Subscription]] = {}
        state: dict[str, Subscription] = {}
        place = 0
        for revision in sorted(revisions):
            while place < len(self.log) and self.log[place].revision <= revision:
                change = self.log[place]
                state.pop(change.id, None)
                if (
                    change.subscription is not None
                    and change.subscription.status is SubscriptionStatus.ACTIVE
                ):
                    state[change.id] = change.subscription
                place += 1
            states[revision] = dict(state)
        return states

    def _check_deliveries(self, batch: int, sources: list[str], active: dict[str, Subscription]) -> int:
        """Hold the published deliveries of a batch against the reference; return how many there are."""
        table = self._deliveries(batch)
        if table is not None:
            assert pc.unique(table["revision"]).to_pylist() == [self.commits[batch]["revision"]], batch
            assert set(pc.unique(table["source"]).to_pylist()) <= set(sources), batch
        total = 0
        for source in sources:
            expected, actual = self._expected(source, active), {} if table is None else _rows(table, source)
            wrong = {
                id: (expected.get(id), actual.get(id))
                for id in expected.keys() | actual.keys()
                if not np.array_equal(expected.get(id, ()), actual.get(id, ()))
            }
            assert not wrong, f"batch {batch}, {source}, expected and found: {list(wrong.items())[:3]}"
            total += sum(map(len, actual.values()))
        assert total == (0 if table is None else len(table)), batch
        assert total == self.commits[batch]["counts"]["deliveries"], batch
        return total

    def _deliveries(self, batch: int) -> pa.Table | None:
        folder = self.output / "deliveries"
        if (folder / "_delta_log").is_dir():
            if self.table is None:
                parts = [pq.ParquetFile(path).read() for path in published_files(folder)]
                self.table = pa.concat_tables(parts).unify_dictionaries()
            found = self.table.filter(pc.equal(self.table["batch"], batch))
            return found if len(found) else None
        paths = list((folder / f"batch={batch}").glob("*.parquet"))
        return pa.concat_tables([pq.ParquetFile(path).read() for path in paths]) if paths else None

    def _expected(self, source: str, active: dict[str, Subscription]) -> Rows:
        kinds = self.kind[source]
        rows = {id: np.flatnonzero(self._verdicts(each)[kinds]) for id, each in active.items()}
        return {id: each for id, each in rows.items() if len(each)}

    def _verdicts(self, subscription: Subscription) -> npt.NDArray[np.bool_]:
        """Whether the reference evaluator gives each kind to a subscription; each pair is judged once."""
        key = text, topic = subscription.selector, subscription.topic
        if key not in self._known:
            selector = sr.Selector(text, subscription.dialect)
            on_topic = TopicFilter.parse(topic).matches if topic is not None else lambda _: True
            verdicts = [on_topic(m.topic) and selector.matches(m) for m in self._messages]
            self._known[key] = np.array(verdicts)
        return self._known[key]


def _rows(table: pa.Table, source: str) -> Rows:
    mine = table.filter(pc.equal(table["source"].cast(pa.string()), source))
    pairs = pa.table({"id": mine["subscription"].cast(pa.string()), "offset": mine["offset"]})
    groups = pairs.group_by("id").aggregate([("offset", "list")])
    offsets = (each.values.to_numpy() for each in groups["offset_list"])
    return dict(zip(groups["id"].to_pylist(), map(np.sort, offsets), strict=True))


def _message(row: dict[str, Any]) -> sr.Message:
    """A message as typed values, whatever the stream makes of its columns."""
    properties = {"color": row["color"], "weight": sr.Int(row["weight"]), "note": row["note"]}
    if row["price"] is not None:
        properties["price"] = sr.Double(row["price"])
    return sr.Message({"JMSType": row["JMSType"]}, properties, topic=row["@topic"])


def run(root: Path, **options: Any) -> Counter[str]:
    return Storm(root, **options).run()


if __name__ == "__main__":
    numbers = {"changes": 1_000, "messages": 1_000_000, "files": 200, "kills": 3}
    program("a storm of changes", run, **numbers, table_format=FORMATS)
