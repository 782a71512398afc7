"""Outcomes as Delta tables: the same rows as in folders, exactly once, for every reader."""

import json
import os
import shutil
import sys
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

from deltalake import DeltaTable, Field, TableFeatures, write_deltalake
from deltalake.schema import PrimitiveType

from selectroute.spark import Job, JobError, check
from selectroute.spark.audit.outcomes import busiest, newest_outcomes
from selectroute.spark.batch.commits import Commits
from selectroute.spark.folder import OutputFolder
from selectroute.spark.job import CommitError, OtherJobError
from selectroute.spark.replay.letters import wanted_letters
from selectroute.spark.replay.request import ReplayFilterSpec
from selectroute.spark.tables import delta_table
from selectroute.spark.tables.delta_table import OutcomeTable
from selectroute.spark.tables.open_tables import tables_of
from selectroute.spark.tables.schemas import DELIVERIES, SINKS
from selectroute.spark.task.writer import Sinks
from selectroute.storage import Location
from tests.support.world import World

RED, BLUE = {"properties": {"color": "red"}}, {"properties": {"color": "blue"}}


def filled(world, batches=3, **options):
    """Route batches of three messages and a bad line; return the router."""
    world.publish(1, red="color = 'red'", any="color IS NOT NULL")
    router = world.router(**options)
    for batch in range(batches):
        add(world, router, batch)
    return router


def add(world, router, batch):
    report = router.route(batch, [world.drop_json(f"{batch}.jsonl", RED, BLUE, {}, "{")], "q")
    router.commits.finish()
    return report


def table(world, sink="deliveries", **options):
    return DeltaTable(str(world.output / sink), **options)


COUNTS = {"deliveries": 9, "unrouted": 3, "dead-letters": 3}


def counts(world):
    return {sink: len(world.rows(sink)) for sink in SINKS}


def rows(world):
    return {sink: Counter(tuple(sorted(map(str, row.items()))) for row in world.rows(sink)) for sink in SINKS}


def files(world, sink="deliveries"):
    return sorted(path.name for path in (world.output / sink).glob("*.parquet"))


def restarted(world, **options):
    """Start the job again; return the sentences about repairs."""
    job = world.job(**options)
    return Commits(job.output, tables_of(job)).prepare()


# ---- what is in them


def test_the_rows_are_those_of_folders(delta, tmp_path):
    other = World(tmp_path / "other")
    other.input.mkdir(parents=True)
    filled(delta)
    filled(other)
    assert rows(delta) == rows(other) and counts(delta) == COUNTS


def test_each_batch_is_a_transaction_that_names_it_with_statistics_by_which_readers_skip_files(delta):
    router = filled(delta)
    made = table(delta)
    id = json.loads((delta.output / "_job.json").read_text())["id"]
    assert made.transaction_version(id) == 2
    newest = made.history(1)[0]["selectroute"]
    assert (newest["batch"], newest["revision"], newest["actions"]) == (2, 1, 2)
    assert newest["counts"]["messages"] == 4
    inputs = router.commits.read(2)["inputs"]
    assert newest["inputs"] == {name: inputs[name] for name in ("count", "sha256")}
    before = next(one["version"] for one in made.history() if one.get("selectroute", {}).get("batch") == 0)
    assert table(delta, version=before).count() == 3
    actions = pa.table(made.get_add_actions(flatten=True)).to_pylist()
    assert sorted((one["min.batch"], one["max.batch"], one["num_records"]) for one in actions) == [
        (batch, batch, 3) for batch in range(3)
    ]
    assert {(one["min.offset"], one["max.offset"], one["min.revision"]) for one in actions} == {(0, 1, 1)}
    # A batch without rows of a table has no transaction there.
    versions = {sink: table(delta, sink).version() for sink in SINKS}
    router.route(3, [delta.drop_json("red.jsonl", RED)], "q")
    assert table(delta).version() == versions["deliveries"] + 1
    assert table(delta, "unrouted").version() == versions["unrouted"]


def test_polars_duckdb_and_arrow_read_the_tables(delta):
    polars = pytest.importorskip("polars", reason="Polars is not installed (the extra `ci`)")
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed (the extra `ci`)")
    router = filled(delta, 6, compact_every=2)
    for stage in ("files of batches", "merged files"):
        for sink in SINKS:
            wanted = Counter(map(str, delta.rows(sink)))
            assert wanted
            frame = polars.read_delta(str(delta.output / sink))
            assert Counter(map(str, frame.to_dicts())) == wanted, stage
            found = duckdb.from_arrow(table(delta, sink).to_pyarrow_dataset())
            arrow = found.to_arrow_table()
            assert Counter(map(str, arrow.to_pylist())) == wanted, stage
        [(count,)] = found.filter("batch = 1").aggregate("count(*)").fetchall()
        assert count == 1
        router.commits.tables.maintain(lambda: False)
    assert any(name.startswith("merged-") for name in files(delta))


def test_the_columns_are_those_of_the_page(delta):
    filled(delta, 1)
    schemas = {sink: json.loads(table(delta, sink).schema().to_json())["fields"] for sink in SINKS}
    columns = {sink: {one["name"]: one["type"] for one in fields} for sink, fields in schemas.items()}
    place = {"source": "string", "partition": "integer", "offset": "long"}
    assert columns["unrouted"] == {"batch": "long", "revision": "long", **place, "message_id": "string"}
    assert columns["deliveries"] == columns["unrouted"] | {"subscription": "string"}
    headers = columns["dead-letters"].pop("headers")
    assert (headers["type"], headers["elementType"]["type"]) == ("array", "struct")
    assert columns["dead-letters"] == {
        **{"batch": "long", "stage": "string", "reason": "string", "message": "string"},
        **{"revision": "long", "subscription": "string", "raw": "binary", "key": "binary"},
        **place,
    }
    assert table(delta).protocol().min_reader_version == 1


@pytest.mark.parametrize("compact_every", [0, 2])
def test_our_own_readers_know_either_format(delta, compact_every):
    router = filled(delta, 5, compact_every=compact_every)
    router.commits.tables.maintain(lambda: False)
    assert any(name.startswith("merged-") for name in files(delta)) == bool(compact_every)
    found = newest_outcomes(delta.output, DELIVERIES, 2, subscription="red")
    assert [(one.batch, one.source, one.offset) for one in found] == [(3, "3.jsonl", 0), (4, "4.jsonl", 0)]
    assert busiest(delta.output, 5).counts == [("any", 10), ("red", 5)]
    assert [one.batch for one in wanted_letters(delta.output)] == list(range(5))
    assert [one.raw for one in wanted_letters(delta.output, ReplayFilterSpec(batches=(3,)))] == [b"{"]


# ---- exactly once


def test_a_repeat_of_a_batch_adds_nothing(delta):
    router = filled(delta)
    before = rows(delta)
    commit = router.commits.read(1)
    router.commits.tables.publish(commit, router.commits.staging(commit))
    assert router.route(1, [delta.input / "1.jsonl"], "q").skipped
    assert delta.router().route(2, [delta.input / "2.jsonl"], "q").skipped
    assert rows(delta) == before


def test_a_batch_that_is_in_one_of_its_tables_only_comes_to_the_others(delta, monkeypatch):
    router = filled(delta, 2)
    append = OutcomeTable.append

    def failing(self, *arguments):
        if self.sink == "unrouted":
            raise OSError(28, "No space left on device")
        append(self, *arguments)

    monkeypatch.setattr(OutcomeTable, "append", failing)
    with pytest.raises(OSError, match="No space left"):
        add(delta, router, 2)
    monkeypatch.undo()
    delta.router()
    assert counts(delta) == COUNTS


def test_side_batches_have_an_app_id_of_their_own(delta):
    router = filled(delta, 2)
    commit = router.commits.read(1)
    for number in (-1, -2):
        side = {**commit, "batch": number, "backfill": {"after": 1, "batches": [1], "subscriptions": []}}
        router.commits.commit({**side, "files": []})
        router.commits.tables.publish(side, router.commits.staging(side))
    id = json.loads((delta.output / "_job.json").read_text())["id"]
    made = table(delta)
    assert (made.transaction_version(id), made.transaction_version(f"{id}-side")) == (1, 2)


def test_files_of_failed_attempts_are_removed_by_the_next_start_and_no_others(delta):
    router = filled(delta, 4, compact_every=2)
    router.commits.tables.maintain(lambda: False)
    kept = files(delta)
    assert sum(name.startswith("part-") for name in kept) == 4, "merged files stay for earlier versions"
    stray = delta.output / "deliveries" / f"part-9-{'0' * 32}.parquet"
    torn = delta.output / "deliveries" / f"merged-1-{'0' * 32}.parquet"
    for path in (stray, torn):
        path.write_bytes(b"PAR1")
    (delta.output / "deliveries" / "README.txt").write_text("ours")
    delta.router()
    assert files(delta) == kept
    assert (delta.output / "deliveries" / "README.txt").exists()
    assert table(delta, version=2).count() == 6


def test_a_task_that_fails_leaves_no_file_in_the_table(delta, monkeypatch):
    router = filled(delta, 1)
    close = Sinks.close

    def failing(self):
        close(self)
        raise RuntimeError("lost")

    monkeypatch.setattr(Sinks, "close", failing)
    with pytest.raises(RuntimeError, match="lost"):
        add(delta, router, 1)
    assert len(files(delta)) == 1


def test_a_batch_that_was_committed_and_not_published_is_published_by_the_next_start(delta, monkeypatch):
    router = filled(delta, 2)
    monkeypatch.setattr(router.commits, "publish", lambda _: None)
    add(delta, router, 2)
    assert len(delta.rows("deliveries")) == 6
    (path,) = (delta.output / "deliveries").glob("part-2-*")
    path.rename(delta.root / "away")
    gone = f"batch 2 is committed, but its file .*{path.name} is gone: restore"
    with pytest.raises(CommitError, match=gone):
        restarted(delta)
    (delta.root / "away").rename(path)
    delta.router()
    assert counts(delta) == COUNTS
    assert [line["batch"] for line in delta.accounting()] == [0, 1, 2]
    assert not list((delta.output / "_staging").iterdir())


# ---- after a loss of power


def log_files(world, sink):
    return OutcomeTable(Location.of(world.output / sink), sink)


@pytest.mark.parametrize("sink", SINKS)
def test_a_last_log_entry_that_is_torn_anywhere_is_removed_and_published_again(delta, sink):
    filled(delta, 2)
    before = rows(delta)
    log = log_files(delta, sink)
    path = log.entry(log.entries()[-1]).path
    data = path.read_bytes()
    lines = [at for at, byte in enumerate(data) if byte == ord("\n")]
    cuts = {0, 1, len(data) // 2, len(data) - 1, *lines, *(at + 1 for at in lines)}
    for torn in [
        *(data[:cut] for cut in sorted(cuts)),
        bytes(len(data)),
        data[:300] + bytes(len(data) - 300),
    ]:
        path.write_bytes(torn)
        (repair,) = restarted(delta)
        assert path.name in repair
        assert rows(delta) == before, torn[-40:]
    assert restarted(delta) == []


def test_a_table_of_which_the_first_entry_is_torn_is_created_again(delta):
    delta.publish(1, red="color = 'red'")
    delta.router()
    path = log_files(delta, "deliveries").entry(0).path
    path.write_bytes(path.read_bytes()[:100])
    assert len(restarted(delta)) == 1
    assert table(delta).version() == 0
    unfinished = path.with_name("00000000000000000009.json#1")  # of a write that did not end
    unfinished.write_bytes(b"{")
    assert restarted(delta) == [] and not unfinished.exists()


def test_a_torn_checkpoint_or_pointer_is_removed(delta):
    router = filled(delta, 25)
    before = rows(delta)
    router.commits.tables.maintain(lambda: False)
    log = log_files(delta, "deliveries")
    (version,) = log.checkpoints()
    checkpoint = log.log.path / f"{version:020d}.checkpoint.parquet"
    pointer = log.log.path / "_last_checkpoint"
    whole = {path: path.read_bytes() for path in (checkpoint, pointer)}
    for path, data in whole.items():
        for torn in (b"", data[:10], data[: len(data) // 2], data[:-2]):
            for one, content in whole.items():
                one.write_bytes(content)
            path.write_bytes(torn)
            removed = restarted(delta)
            assert any(path.name in sentence for sentence in removed)
            assert rows(delta) == before
    checkpoint.unlink(missing_ok=True)
    pointer.write_bytes(whole[pointer])
    assert len(restarted(delta)) == 1
    assert rows(delta) == before


def test_a_log_that_has_lost_its_newest_entries_gets_them_again(delta):
    filled(delta, 4)
    before = rows(delta)
    for sink in SINKS:
        log = log_files(delta, sink)
        for version in log.entries()[-2:]:
            log.entry(version).delete()
    restarted(delta)
    assert rows(delta) == before


def test_what_a_batch_needs_is_flushed_before_it_is_done(delta, monkeypatch):
    """The log entry and its folder, after the files and the commit."""
    router = filled(delta, 1)
    synced, output = [], delta.output
    fsync = os.fsync

    def noting(descriptor):
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), output))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    add(delta, router, 1)
    named = f"deliveries/_delta_log/.{log_files(delta, 'deliveries').entries()[-1]:020d}"
    (data,) = (name for name in synced if name.startswith("deliveries/part-1-"))
    commit = next(n for n, name in enumerate(synced) if name.startswith("_commits/.1-"))
    (entry,) = (name for name in synced if name.startswith(named))
    order = [synced.index(data), synced.index("deliveries"), commit, synced.index(entry)]
    assert order == sorted(order)
    assert synced.index("deliveries/_delta_log") > synced.index(entry)
    assert synced.index("accounting.jsonl") > synced.index("deliveries/_delta_log")


# ---- whose they are


def refused(world, match, error=OtherJobError, **options):
    before = {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()}
    with pytest.raises(error, match=match) as found:
        check(world.job(**options))
    assert "\n" not in str(found.value)
    assert {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_job_keeps_its_format(tmp_path, kind):
    world, other = World(tmp_path, table_format=kind), {"delta": "parquet", "parquet": "delta"}[kind]
    world.input.mkdir()
    folder = OutputFolder(world.job())
    folder.claim()
    (world.job().checkpoint.path / "metadata").write_text('{"id":"q"}')
    folder.bind()
    folder.release()
    filled(world, 1)
    check(world.job())
    said = f"has tables of the format {kind}, not {other}: start the job with --table-format {kind}"
    refused(world, said, table_format=other)


def test_tables_of_others_and_such_as_are_gone_or_damaged_are_refused(delta):
    filled(delta, 3)
    record = Location.of(delta.output / "_job.json")
    written = record.read_json()
    record.put_json(written | {"id": "another"})
    refused(delta, "is of the job .*, not of another: move it away")
    record.put_json(written)
    unrouted, away = delta.output / "unrouted", delta.root / "away"
    unrouted.rename(away)
    refused(delta, "unrouted is gone, and batches were committed to it: restore it", JobError)
    write_deltalake(str(unrouted), pa.table({"n": [1]}))
    refused(delta, "unrouted is not of this job: move it away")
    shutil.rmtree(unrouted)
    away.rename(unrouted)
    table(delta, "unrouted").alter.add_columns([Field("price", PrimitiveType("double"))])
    refused(delta, r"has other columns than this job writes \(the column price\)")
    path = log_files(delta, "deliveries").entry(1).path
    path.write_bytes(path.read_bytes()[:100])
    refused(delta, "deliveries cannot be read: ", JobError)


@pytest.mark.parametrize("name", ["a%20b", "a\\b"])
def test_a_path_that_the_library_misreads_is_refused(tmp_path, name):
    with pytest.raises(JobError, match="cannot have Delta tables: its path has a backslash, or a %"):
        Job.of(tmp_path / "in", tmp_path / "snapshots", tmp_path / name, table_format="delta")
    Job.of(tmp_path / "in", tmp_path / "snapshots", tmp_path / name)


@pytest.mark.parametrize("name", ["a b", "é", "100%", "a#b?c"])
def test_other_paths_are_taken(tmp_path, name):
    world = World(tmp_path / name, table_format="delta")
    world.input.mkdir(parents=True)
    filled(world, 1)
    assert len(world.rows("deliveries")) == 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"table_format": "iceberg"}, "table_format must be one of parquet, delta, not 'iceberg'"),
        ({"compact_every": -1}, "compact_every must be from 0 to"),
        ({"table_retention_hours": 0}, "table_retention_hours must be from 1 to 87,600, not 0"),
    ],
)
def test_options_out_of_range_are_named(delta, options, named):
    with pytest.raises(JobError, match=named):
        delta.job(**options)


def test_a_missing_extra_is_named(delta, monkeypatch):
    monkeypatch.delitem(sys.modules, "selectroute.spark.tables.delta", raising=False)
    monkeypatch.delitem(sys.modules, "selectroute.spark.tables.delta_table", raising=False)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    delta.publish(1, red="color = 'red'")
    refused(delta, r"Delta tables need the extra `delta` of selectroute: pip install", JobError)


def test_an_error_of_the_library_is_one_line(delta):
    coloured = (
        "Generic error\n  \x1b[31m↳\x1b[0m Unable to rename file\n  \x1b[31m↳\x1b[0m {}\n   0: <unknown>\n"
    )
    made = OutcomeTable(Location.of(delta.output / "deliveries"), "deliveries")
    with pytest.raises(OSError, match=r"Input/output error: .*deliveries") as raised, made._errors("take it"):
        raise OSError(coloured.format("(os error 5)"))
    assert raised.value.errno == 5
    wanted = r"deliveries cannot take it: Generic error: Unable to rename file: no$"
    with pytest.raises(CommitError, match=wanted), made._errors("take it"):
        raise OSError(coloured.format("no"))


# ---- behind the stream


def test_files_are_merged_and_the_rows_stay(delta):
    router = filled(delta, 7, compact_every=3)
    before = rows(delta)
    router.commits.tables.maintain(lambda: False)
    assert rows(delta) == before
    for sink in SINKS:
        live = [os.path.basename(uri) for uri in table(delta, sink).file_uris()]
        assert len(live) == 1 and live[0].startswith("merged-1-")
    # A merge changes no data for streaming readers.
    log = log_files(delta, "deliveries")
    actions = [json.loads(line) for line in log.entry(log.entries()[-1]).path.read_text().splitlines()]
    changes = [one[kind]["dataChange"] for one in actions for kind in ("add", "remove") if kind in one]
    assert len(changes) > 2 and not any(changes)
    add(delta, router, 7)
    assert len(delta.rows("deliveries")) == 24
    assert table(delta).history(2)[1]["selectroute"]["merged"] == 1


def test_a_merge_waits_while_the_stream_is_busy_and_not_for_ever(delta):
    router = filled(delta, 7, compact_every=2)
    tables = router.commits.tables
    tables.maintain(lambda: False, lambda: True)
    assert len(files(delta)) == 7
    add(delta, router, 7)
    tables.maintain(lambda: False, lambda: True)
    assert any(name.startswith("merged-1-") for name in files(delta))
    for batch in (8, 9):
        add(delta, router, batch)
    tables.maintain(lambda: False, lambda: True)
    assert len(table(delta).file_uris()) == 3
    tables.maintain(lambda: False, lambda: False)
    assert len(table(delta).file_uris()) == 2


def test_checkpoints_are_made_and_the_log_is_cut(delta, monkeypatch):
    monkeypatch.setattr(delta_table, "_KEPT_VERSIONS", 20)
    router = filled(delta, 0, compact_every=10)
    of_deliveries = router.commits.tables._tables["deliveries"]
    first = of_deliveries._table
    for batch in range(95):
        add(delta, router, batch)
        router.commits.tables.maintain(lambda: False)
    log = log_files(delta, "deliveries")
    assert len(log.entries()) < 60 and log.entries()[0] in log.checkpoints()
    assert len(delta.rows("deliveries")) == 95 * 3
    with of_deliveries._current("be read") as now:  # it has begun with the newest checkpoint
        assert now is not first and now.version() == table(delta).version()
        assert sorted(now.file_uris()) == sorted(table(delta).file_uris())
    assert restarted(delta) == []
    oldest = table(delta, version=log.entries()[0])
    assert 0 < oldest.count() < 95 * 3


def test_merged_files_are_removed_after_the_retention(delta, monkeypatch):
    router = filled(delta, 24, compact_every=4)
    tables = router.commits.tables
    tables.maintain(lambda: False)
    assert sum(name.startswith("part-") for name in files(delta)) == 24
    for batch in range(24, 48):
        add(delta, router, batch)
    tables._retention_hours = 0  # less than the option allows, so that no time need pass
    tables.maintain(lambda: False)
    assert sum(name.startswith("part-") for name in files(delta)) == 0
    assert len(delta.rows("deliveries")) == 48 * 3
    assert restarted(delta) == []


def test_batches_go_on_while_files_are_merged(delta):
    router = filled(delta, 0, compact_every=2)
    ending = threading.Event()
    errors = []

    def maintain():
        while not ending.is_set():
            try:
                router.commits.tables.maintain(lambda: False)
            except Exception as error:
                errors.append(error)

    thread = threading.Thread(target=maintain)
    thread.start()
    try:
        for batch in range(60):
            add(delta, router, batch)
    finally:
        ending.set()
        thread.join()
    assert errors == []
    assert len(delta.rows("deliveries")) == 180
    assert Counter(row["batch"] for row in delta.rows("deliveries")) == dict.fromkeys(range(60), 3)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_merge_whose_transaction_fails_leaves_no_file_unless_it_is_done(delta, monkeypatch, is_done):
    router = filled(delta, 4, compact_every=2)
    before = rows(delta)
    commit = OutcomeTable._commit

    def failing(self, *arguments):
        if is_done:
            commit(self, *arguments)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(OutcomeTable, "_commit", failing)
    with pytest.raises(OSError, match="Input/output"):
        router.commits.tables.maintain(lambda: False)
    monkeypatch.undo()
    assert len([name for name in files(delta) if name.startswith("merged-")]) == is_done
    assert rows(delta) == before
    router.commits.tables.maintain(lambda: False)
    add(delta, router, 4)
    assert len(delta.rows("deliveries")) == 15


def test_another_writer_may_merge_the_files_too(delta):
    router = filled(delta, 6, compact_every=3)
    table(delta).optimize.compact()
    add(delta, router, 6)
    router.commits.tables.maintain(lambda: False)
    assert Counter(row["batch"] for row in delta.rows("deliveries")) == dict.fromkeys(range(7), 3)
    assert restarted(delta) == []


def test_a_protocol_that_another_writer_has_raised_stops_the_job(delta):
    router = filled(delta, 2)
    table(delta).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    before = log_files(delta, "deliveries").entries()
    with pytest.raises(JobError, match="uses deletionVectors, which this job cannot write: undo it"):
        add(delta, router, 2)
    assert log_files(delta, "deliveries").entries() == before


def test_the_batches_after_another_writers_are_appended_as_before(delta):
    router = filled(delta, 1)
    for batch in range(1, 6):
        if batch % 2:
            table(delta).alter.set_table_properties({"some.note": str(batch)}, raise_if_not_exists=False)
        add(delta, router, batch)
    versions = [one for one in table(delta).history() if "batch" in one.get("selectroute", {})]
    assert sorted(one["selectroute"]["batch"] for one in versions) == list(range(6))
    assert len(delta.rows("deliveries")) == 6 * 3
    assert restarted(delta) == []


@pytest.mark.parametrize("at_once", [False, True])
def test_of_two_drivers_one_appends_a_batch(delta, monkeypatch, at_once):
    router = filled(delta, 2)
    folder, id = Location.of(delta.output / "deliveries"), router.commits.tables._tables["deliveries"]._id
    one, other = OutcomeTable(folder, "deliveries"), OutcomeTable(folder, "deliveries")
    appended = []
    with monkeypatch.context() as patched:
        patched.setattr(OutcomeTable, "append", lambda self, *append: appended.append((self.sink, append)))
        add(delta, router, 2)
    (append,) = (append for sink, append in appended if sink == "deliveries")
    for driver in (one, other):
        driver.prepare(id, 24)
    if at_once:  # between the look of one and its commit the other commits
        table(delta).alter.set_table_properties({"some.note": "1"}, raise_if_not_exists=False)
        check = one._check
        monkeypatch.setattr(one, "_check", lambda *given: (other.append(*append), check(*given)))
    else:
        other.append(*append)
    one.append(*append)
    assert table(delta).count() == 3 * 3
    assert len([row for row in table(delta).history() if row.get("selectroute", {}).get("batch") == 2]) == 1
    assert one._version == table(delta).version(), "so the next append is one request again"


# ---- the page


def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("polars", reason="Polars is not installed (the extra `ci`)")
    pytest.importorskip("duckdb", reason="DuckDB is not installed (the extra `ci`)")
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "delta-tables.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    world = World(tmp_path, table_format="delta")
    world.input.mkdir()
    filled(world)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "delta-tables.md", "exec"), names)
    assert sorted(names["versions"]) == [0, 1, 2]
