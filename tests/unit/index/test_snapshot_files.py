"""Published snapshots: what is written, what is refused, what damage is named."""

import functools
import json
import os
import random
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.arrays import tables as t
from selectroute.index import snapshot_files
from selectroute.index.changes import Add, Remove, Replace
from selectroute.index.errors import InvariantError
from selectroute.index.invariants import verify_snapshot
from selectroute.index.snapshot_files import _canonical, _self_digest, published, published_digest, revisions
from tests.unit.index.published import pairs, small


@pytest.fixture
def folder(tmp_path):
    sr.publish(small(), tmp_path)
    return tmp_path


def test_a_published_snapshot_matches_as_the_frozen_one(folder):
    opened = sr.Snapshot.open(folder)
    verify_snapshot(opened)
    assert pairs(opened) == pairs(small())
    assert opened.reads == small().reads
    assert opened.ids.to_pylist() == ["heavy", "light", "parts", "topic"]
    assert (opened.revision, opened.digest) == (1, published_digest(folder, 1))


def test_revisions_ascend_and_each_stays_readable_and_is_never_written_over(folder):
    assert sr.publish(sr.Index().freeze(), folder) == 2
    assert sr.publish(small(10), folder) == 10
    for name in ("manifest-0099.json", "manifest-\u0663.json", "manifest-77.json.tmp"):
        (folder / name).write_text("{}")  # these only look like manifests
    assert revisions(folder) == [1, 2, 10]
    assert sr.Snapshot.open(folder).revision == 10
    empty = sr.Snapshot.open(folder, 2)
    verify_snapshot(empty)
    assert (len(empty), pairs(empty), empty.reads) == (0, [[], [], []], ())
    assert pairs(sr.Snapshot.open(folder, 1)) == pairs(small())
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(sr.SnapshotError, match="revision 1 is already published"):
        sr.publish(small(1), folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_every_flipped_bit_is_a_named_error(folder):
    chance = random.Random(3)
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        data = path.read_bytes()
        positions = range(len(data)) if len(data) < 1_000 else chance.sample(range(len(data)), 200)
        for position in positions:
            damaged = bytearray(data)
            damaged[position] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            with pytest.raises(sr.SnapshotError) as raised:
                sr.Snapshot.open(folder)
            assert path.name in str(raised.value)
        path.write_bytes(data)
    sr.Snapshot.open(folder)


def test_a_truncated_or_missing_file_is_a_named_error(folder):
    for part in ("segments", "ids"):
        [path] = (folder / part).iterdir()
        data = path.read_bytes()
        for size in (0, 1, len(data) - 1):
            path.write_bytes(data[:size])
            with pytest.raises(sr.SnapshotError, match=path.name):
                sr.Snapshot.open(folder)
        path.unlink()
        with pytest.raises(sr.SnapshotError, match="missing"):
            sr.Snapshot.open(folder)
        path.write_bytes(data)


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
def test_files_that_change_after_they_were_opened_change_nothing(folder, monkeypatch, tmp_path, in_memory):
    monkeypatch.setattr("selectroute.index.snapshot_files._IN_MEMORY", in_memory)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    opened = sr.Snapshot.open(folder)
    for path in (*folder.glob("segments/*"), *folder.glob("ids/*")):
        with path.open("r+b") as file:
            file.write(b"\xff" * path.stat().st_size)
        os.truncate(path, 0)
    assert pairs(opened) == pairs(small()) and opened.ids.to_pylist() == small().ids.to_pylist()


def test_a_folder_that_is_missing_or_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(sr.SnapshotError, match="selectroute index build"):
        sr.Snapshot.open(tmp_path / "none")
    with pytest.raises(sr.SnapshotError, match="revision 7 is not published"):
        sr.Snapshot.open(tmp_path, 7)
    (tmp_path / "file").write_text("")
    with pytest.raises(sr.SnapshotError, match="cannot be written"):
        sr.publish(small(), tmp_path / "file" / "below")


def test_another_format_version_says_to_build_again(folder, monkeypatch):
    monkeypatch.setattr("selectroute.index.snapshot_files.FORMAT", 5)
    with pytest.raises(sr.SnapshotError, match="format 4, this version reads format 5"):
        sr.Snapshot.open(folder)


def remade(folder, change):
    """A manifest is data from outside: change it, and make it well-formed again."""
    path = folder / "manifest-1.json"
    manifest = json.loads(path.read_bytes())
    change(manifest)
    manifest["sha256"] = _self_digest(manifest)
    path.write_bytes(_canonical(manifest))
    return path


def test_a_manifest_cannot_lead_out_of_its_folder(folder):
    remade(folder, lambda found: found["segments"][0]["ids"].update(file="../x"))
    with pytest.raises(sr.SnapshotError, match="outside"):
        sr.Snapshot.open(folder)


@pytest.mark.parametrize("field", ["segments", "revision", "file", "sha256", "ids"])
def test_a_manifest_with_a_field_missing_is_a_named_error(folder, field):
    is_top = field in ("segments", "revision")
    path = remade(folder, lambda found: (found if is_top else found["segments"][0]).pop(field))
    with pytest.raises(sr.SnapshotError, match=path.name):
        sr.Snapshot.open(folder)


def test_a_crash_before_the_manifest_leaves_no_revision(folder, monkeypatch):
    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", crash)
    with pytest.raises(KeyboardInterrupt):
        sr.publish(small(), folder)
    assert revisions(folder) == [1]
    monkeypatch.undo()
    assert sr.publish(small(), folder) == 2


@pytest.mark.parametrize("revision", [-1, 2**63, True, "1", 1.0])
def test_what_is_no_revision_is_refused(tmp_path, revision):
    with pytest.raises(sr.SnapshotError, match="is not a revision"):
        sr.publish(replace(small(), revision=revision), tmp_path)  # `freeze` would refuse some itself
    assert list(tmp_path.iterdir()) == []


def test_there_is_no_revision_after_the_largest(tmp_path):
    sr.publish(small(2**63 - 1), tmp_path)
    assert sr.Snapshot.open(tmp_path).revision == 2**63 - 1
    with pytest.raises(sr.SnapshotError, match="has the last revision"):
        sr.publish(small(), tmp_path)


def test_publishers_without_a_revision_do_not_get_in_each_others_way(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        published = list(pool.map(lambda _: sr.publish(small(), tmp_path), range(8)))
    assert sorted(published) == list(range(1, 9))


@pytest.mark.parametrize(
    "name", ["entry_ordinal", "entry_bound", "slot", "code_leaf", "group_first", "string_slot", "number"]
)
def test_verify_notices_a_changed_array(name):
    index = sr.Index()
    for number in range(40):
        index.add(f"s{number}", f"JMSType = 't{number}' AND weight > {number} AND n = {number}")
        index.add(f"r{number}", f"weight > {number}")
    snapshot = index.freeze()
    array = getattr(snapshot.segments[0].tables, name).copy()
    array[len(array) // 2], array[0] = array[0] - 7, array[len(array) // 2] + 7
    with pytest.raises((InvariantError, IndexError)):
        verify_snapshot(with_tables(snapshot, **{name: array}))


def with_segment(snapshot, **change):
    [segment] = snapshot.segments
    return replace(snapshot, segments=(replace(segment, **change),))


def with_tables(snapshot, **change):
    return with_segment(snapshot, tables=snapshot.segments[0].tables._replace(**change))


def of_every_operand():
    """A snapshot with ranges, and with programs that have constants, sets, patterns and levels."""
    index = sr.Index()
    index.add("range", "JMSType = 'car' AND weight > 2500")
    index.add("program", "weight + 1 > 2 AND JMSType LIKE 'b_s' AND color NOT IN ('blue', 'red')")
    index.add("key", "x LIKE 'a%' AND NOT (weight = 10)")
    index.add("topic", topic="a/#/b/#")
    return index.freeze()


def with_step(operations, /, **parts):
    """A change of the first step that has one of these operations."""

    def change(tables):
        step = tables.step.copy()
        row = next(i for i, found in enumerate(step[:, 0]) if found in operations)
        for column, name in enumerate(("operation", "attribute", "argument")):
            step[row, column] = parts.get(name, step[row, column])
        return {"step": step}

    return change


def with_value(name, position, value):
    def change(tables):
        array = getattr(tables, name).copy()
        array[position] = value
        return {name: array}

    return change


def with_group_attribute(value):
    def change(tables):
        return {"group_attribute": np.where(tables.group_flags & t.SORTED, value, 0).astype(np.int32)}

    return change


def with_reversed_set(tables):
    number = next(argument for operation, _, argument in tables.step if operation == t.NOT_IN)
    item = tables.item.copy()
    codes = slice(*tables.item_first[number : number + 2])
    item[codes] = item[codes][::-1]
    return {"item": item}


def with_unknown_level(tables):
    number = next(argument for operation, _, argument in tables.step if operation == t.LEVELS)
    return with_value("item", tables.item_first[number], len(tables.level_first) - 1)(tables)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (with_group_attribute(99), "a sorted group is of a known attribute"),
        (with_group_attribute(-1), "a sorted group is of a known attribute"),
        (with_step([t.LOAD], operation=99), "every operation of a step is known"),
        (with_step([t.LOAD], operation=-1), "every operation of a step is known"),
        (with_step([t.LOAD], attribute=99), "a step reads a known attribute"),
        (with_step([t.IS_KEY], attribute=-1), "a step reads a known attribute"),
        (with_step([t.CONSTANT], attribute=t.STRING), "a constant is a boolean or a number"),
        (with_step([t.CONSTANT], attribute=t.BOOLEAN, argument=2), "a boolean constant is 0 or 1"),
        (with_step([t.NOT_IN], argument=99), "a step has a known set or pattern"),
        (with_step([t.LIKE], argument=-1), "a step has a known set or pattern"),
        (with_reversed_set, "the codes of a set ascend"),
        (with_unknown_level, "a levels pattern is of known levels"),
        (with_value("term_program", 0, 99), "a term runs a program"),
        (with_step([t.ADD], operation=t.NEGATE), "a program leaves one value"),
        (with_step([t.LOAD], operation=t.AND), "a step has its operands on the stack"),
        (lambda tables: {"slot_first": np.append(tables.slot_first, tables.slot_first[-1])}, "each posting"),
        (lambda tables: {"number_first": np.append(0, tables.number_first)}, "each attribute"),
        (lambda tables: {"large_float_first": np.append(0, tables.large_float_first)}, "each attribute"),
        (lambda tables: {"string_slot_first": np.append(0, tables.string_slot_first)}, "each attribute"),
        (with_step([t.ADD], attribute=99), "computes and compares in a known way"),
        (lambda tables: {"group_flags": tables.group_flags | 0x8000}, "every flag of a group is known"),
        (lambda tables: {"group_flags": tables.group_flags | 0xC0}, "the bounds are longs"),
        (lambda tables: {"term_wanted": tables.term_wanted[1:]}, "term_wanted has one for each term"),
    ],
)
def test_verify_notices_what_would_lead_the_kernel_out_of_its_arrays(change, sentence):
    snapshot = of_every_operand()
    verify_snapshot(snapshot)
    broken = with_tables(snapshot, **change(snapshot.segments[0].tables))
    with pytest.raises(InvariantError, match=sentence):
        verify_snapshot(broken)


def with_attributes(**change):
    return lambda one: {"attributes": tuple(replace(attribute, **change) for attribute in one.attributes)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda one: {"checks_names": not one.checks_names}, "names are checked"),
        (with_attributes(codes=False), "has codes"),
        (with_attributes(values=False), "has values"),
        (
            lambda one: {"attributes": (replace(one.attributes[0], name="@nope"), *one.attributes[1:])},
            "derived",
        ),
        (lambda one: {"depth": one.depth - 1}, "deeper stack"),
    ],
)
def test_verify_notices_what_would_make_the_kernel_wrong(change, sentence):
    snapshot = of_every_operand()
    with pytest.raises(InvariantError, match=sentence):
        verify_snapshot(with_segment(snapshot, **change(snapshot.segments[0])))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("seltype", "OTHER", "seltype is never NULL, and one of EXTENDED"),
        ("dialect", "sql", "dialect is never NULL, and one of ibm"),
    ],
)
def test_verify_notices_what_no_subscription_can_be(name, text, sentence):
    table = of_every_operand().subscriptions
    column = pa.array([text] * len(table), pa.string())
    changed = table.set_column(table.schema.get_field_index(name), name, column)
    with pytest.raises(InvariantError, match=sentence):
        verify_snapshot(replace(of_every_operand(), subscriptions=changed))


def test_a_folder_is_made_for_its_user_and_one_that_exists_keeps_its_mode(tmp_path):
    snapshot = sr.build_snapshot([{"id": "a", "selector": "secret = 1"}])
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o750)
    for folder, mode in (("new", 0o700), ("shared", 0o750)):
        sr.publish(snapshot, tmp_path / folder)
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == mode


def changed_three_times(folder):
    """Revisions 2 to 4 of the folder, each a delta beside the base."""
    snapshot = sr.Snapshot.open(folder)
    for change in (Add("new", "weight = 10"), Remove("heavy"), Replace("new", "weight = 3000")):
        snapshot = published(snapshot.changed([change]), folder)
    return snapshot


def test_a_segment_is_written_once_and_named_by_every_revision_that_has_it(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.arrow")}
    changed_three_times(folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [len(list((folder / part).iterdir())) for part in ("segments", "ids")] == [4, 4]
    for revision, segments in ((1, 1), (2, 2), (3, 3), (4, 4)):
        entries = json.loads((folder / f"manifest-{revision}.json").read_bytes())["segments"]
        assert [entry["kind"] for entry in entries] == ["base", "delta", "delta", "delta"][:segments]
    assert [entry["removed"] for entry in entries] == [0, 0, 1, 1]
    assert pairs(sr.Snapshot.open(folder)) == [[2, 5], [1, 2], []]


def test_a_published_snapshot_of_deltas_is_the_one_that_was_made(folder):
    made = changed_three_times(folder)
    opened = sr.Snapshot.open(folder)
    verify_snapshot(opened)
    assert pairs(opened) == pairs(made)
    assert (opened.deaths, len(opened), opened.digest) == (made.deaths, len(made), made.digest)
    assert opened.subscriptions.equals(made.subscriptions)


def test_what_was_opened_once_is_neither_read_nor_mapped_again(folder, monkeypatch):
    held = sr.Snapshot.open(folder)
    changed_three_times(folder)
    read = []
    real = snapshot_files.read_table
    monkeypatch.setattr(snapshot_files, "read_table", lambda *a: (read.append(a[1]), real(*a))[1])
    newest = sr.Snapshot.open(folder)
    assert newest.segments[0] is held.segments[0]
    assert len(read) == 6, "three deltas with their ids"
    assert sr.Snapshot.open(folder, 3).segments == newest.segments[:3]
    assert len(read) == 6
    del held, newest
    sr.Snapshot.open(folder)
    assert len(read) == 14, "nobody has them any more"


def test_a_file_that_was_written_over_is_read_again_though_it_was_opened(folder):
    held = sr.Snapshot.open(folder)
    [path] = (folder / "segments").iterdir()
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.unlink()
    path.write_bytes(damaged)
    with pytest.raises(sr.SnapshotError, match="damaged"):
        sr.Snapshot.open(folder)
    assert pairs(held) == pairs(small())


def test_another_folder_gets_files_of_its_own(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    assert published(changed_three_times(folder), other).revision == 4
    assert sr.publish(sr.Snapshot.open(other).changed([Remove("light")], 9), folder) == 9
    for path in (folder, other):
        verify_snapshot(sr.Snapshot.open(path))
    assert len(sr.Snapshot.open(folder)) == 3


def test_a_refused_revision_leaves_no_file_behind(folder):
    snapshot = sr.Snapshot.open(folder).changed([Add("new")], 1)
    before = sorted(folder.rglob("*"))
    with pytest.raises(sr.SnapshotError, match="already published"):
        sr.publish(snapshot, folder)
    assert sorted(folder.rglob("*")) == before
    assert published(replace(snapshot, revision=2), folder).revision == 2
    assert len(sr.Snapshot.open(folder)) == 5


def test_a_crash_at_any_step_leaves_the_revision_complete_or_absent(folder, monkeypatch):
    """A fault at each step that makes something durable, n = 1, 2, 3 … until publishing succeeds."""
    durable = ("fsync", "link", "replace", "rename", "mkdir")
    snapshot = sr.Snapshot.open(folder).changed([Remove("heavy"), Add("new")])
    for step in range(100):
        left = [step]

        def failing(*arguments, real, left=left, **named):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return real(*arguments, **named)

        with monkeypatch.context() as context:
            for name in durable:
                context.setattr(os, name, functools.partial(failing, real=getattr(os, name)))
            try:
                revision = sr.publish(snapshot, folder)
            except KeyboardInterrupt:
                revision = None
        newest = sr.Snapshot.open(folder)
        assert len(newest.ids) in ((4,) if newest.revision == 1 else (5,))
        if revision is not None:
            break
        # What a crash left behind is in nobody's way, not even in that of the same publisher.
    assert revision is not None and step > 5
    assert sr.Snapshot.open(folder, revision).deaths == (1, 0)
