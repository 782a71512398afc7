"""Snapshot folders by an attacker: ``python -m tests.crash.programs.files.hostile --copies 1000``.

Each copy of a sound folder has one thing changed in it, with every digest put right again: one element of an
array or all of them, a length, a type, the header, the ids, bytes anywhere, or the manifest. A copy is opened
and, if that is possible, matched, in a process of its own: it is refused with a sentence, or it gives some
matches. It never ends the process, never goes on for ever, and no other exception comes out.

``tests.crash.programs.files.damage`` is about accidents, which the digests show.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import multiprocessing
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

import selectroute as sr
from selectroute.arrays import tables as t
from tests.crash.programs.harness import program

_fork = multiprocessing.get_context("fork")

_SECONDS = 20
"""A copy that is opened and matched takes milliseconds."""

EXTREMES = (0, 1, -1, 2, 7, 63, 64, 255, 4096, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))


def sound(folder: Path) -> None:
    """Publish a snapshot whose every array has an element: a base, and a delta with tombstones."""
    subscriptions: list[tuple[str, str, str | None]] = []

    def add(selector: str, topic: str | None = None) -> None:
        subscriptions.append((f"s{len(subscriptions)}", selector, topic))

    for n in range(900):
        add(f"JMSType = 't{n % 50}' AND color = 'c{n // 50}' AND region = 'r0' AND w > 5")
    for n in range(200):  # a hot pair, whose leaf is divided
        add(f"JMSType = 'car' AND color = 'red' AND region = 'r{n % 20}' AND w > {n}")
    for n in range(40):
        add(f"JMSType = 'bus' AND w BETWEEN {n} AND {n + 9} AND size + {n} > 2")
        add(f"x LIKE 'ab{n}%'")
        add(f"n = {n}.5 OR n = {n} OR f = {2.0**60 + n * 2.0**20}")
    add("x LIKE 'a%'")
    add("x LIKE 'abc%'")
    add("f = 1e30f OR f = 2e30f")
    add("w + 1 > 2 AND JMSType LIKE 'b_s%t' AND color NOT IN ('blue', 'red') OR x IS NULL OR b = TRUE")
    add("NOT (color = 'red') AND x LIKE '%needle%'")
    add("w > 3 OR w > 4 OR size > 3", "a/#/b/#/c")
    add("size NOT BETWEEN 3 AND w", "+/eu")
    for _, selector, topic in tuple(subscriptions):  # entries are shared
        add(selector, topic)
    snapshot = sr.build_snapshot(subscriptions)
    changes = [sr.Remove("s0"), sr.Replace("s900", "w > 100"), sr.Add("new", "JMSType = 'car' AND w < 9")]
    sr.publish(snapshot, folder)
    sr.publish(snapshot.changed(changes), folder)


def messages() -> pa.RecordBatch:
    """Rows that reach every kind of entry."""
    chance = Random(5)
    rows = 300
    return pa.record_batch(
        {
            "JMSType": [chance.choice(["car", "bus", "busst", None, "t1", "t7"]) for _ in range(rows)],
            "color": [chance.choice(["red", "blue", "c1", "c2", None]) for _ in range(rows)],
            "region": [chance.choice(["r0", "r3", "r19", None]) for _ in range(rows)],
            "x": [chance.choice(["a", "ab7", "abc", "ab1x", "a needle b", "", None]) for _ in range(rows)],
            "w": pa.array([chance.choice([None, *range(220)]) for _ in range(rows)], pa.int32()),
            "size": pa.array([chance.choice([None, 1.5, 4.0, float("nan")]) for _ in range(rows)]),
            "n": pa.array([chance.choice([None, 1, 7]) for _ in range(rows)], pa.int64()),
            "f": pa.array([chance.choice([None, 1e30, 2.0**60]) for _ in range(rows)], pa.float32()),
            "b": [chance.choice([None, True, False]) for _ in range(rows)],
            "@topic": [chance.choice(["a/b/c", "a/x/b/eu", "cars/eu", None]) for _ in range(rows)],
        }
    )


def hostile(folder: Path, chance: Random) -> str:
    """Change one thing in a folder, its digests put right. Returns what was changed."""
    path = folder / "manifest-2.json"
    manifest = json.loads(path.read_text())
    entry = chance.choice(manifest["segments"])
    segment = entry["kind"]
    kind = chance.choices([*_CHANGES, "manifest"], (70, 8, 8, 8, 6))[0]
    if kind == "manifest":
        name = _change_manifest(manifest, entry, chance)
    else:
        of = entry["ids"] if kind == "ids" or (kind == "bytes" and chance.random() < 0.6) else entry
        file = folder / of["file"]
        name = _CHANGES[kind](file, chance)
        of["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    del manifest["sha256"]
    manifest["sha256"] = hashlib.sha256(_canonical(manifest)).hexdigest()
    path.write_bytes(_canonical(manifest))
    return f"{kind} of {segment}: {name}"


def _canonical(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, sort_keys=True).encode()


def _change_array(file: Path, chance: Random) -> str:
    table = _read(file)
    name = chance.choice(table.column_names)
    values = table[name].chunk(0).values.to_numpy(zero_copy_only=False).copy()
    count, info = len(values), np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
    hows = ("type", "longer", "shorter", "empty")
    how = chance.choice((*hows, *(("one", "one", "all", "shift", "swap") if count else ())))
    value = chance.choice((*EXTREMES, count, count - 1, chance.randrange(1 << 16)))
    value = value if info is None else min(max(value, info.min), info.max)
    at, other = chance.randrange(count or 1), chance.randrange(count or 1)
    with np.errstate(all="ignore"):
        if how == "type":
            values = values.astype(chance.choice((np.int8, np.int16, np.float32, np.uint32)))
        elif how == "longer":
            values = np.concatenate((values, values[-1:], values[:1]))
        elif how in ("shorter", "empty"):
            values = values[:-1] if how == "shorter" else values[:0]
        elif how == "shift":
            value = chance.choice((1, -1, 3))
            values = (values + np.array(value).astype(values.dtype)).astype(values.dtype)
        elif how == "swap":
            values[[at, other]] = values[[other, at]]
        else:
            values[slice(None) if how == "all" else at] = value
    column = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), pa.array(values))
    _write(file, table.set_column(table.column_names.index(name), name, column))
    return f"{name} {how} [{at}] {value}"


def _change_header(file: Path, chance: Random) -> str:
    table = _read(file)
    header = json.loads(table.schema.metadata[b"selectroute"])
    attributes = header["attributes"]
    attribute = chance.choice(attributes)
    names = ("@nope", "@topic[99999999999999999999]", "", 5, "@topic[x]")
    lists = (attributes[:-1], [*attributes, attribute], "x")
    changes: list[tuple[dict[str, Any], str, Any]] = [
        *((header, "depth", depth) for depth in (0, 10**12, -1, "x", None, 1.5, True)),
        *((header, "attributes", each) for each in lists),
        (header, "scanned", 5),
        *((header, "checks_names", checks) for checks in ("no", not header["checks_names"])),
        *((attribute, "name", name) for name in names),
        *((attribute, key, not attribute[key]) for key in ("codes", "values")),
        (attribute, "other", 1),
    ]
    where, key, value = chance.choice(changes)
    where[key] = value
    text = chance.choices((json.dumps(header), "[" * 100_000, "{}", "\xff"), (30, 1, 1, 1))[0]
    _write(file, table.replace_schema_metadata({"selectroute": text}))
    return f"{key} = {str(value)[:40]}"


def _change_ids(file: Path, chance: Random) -> str:
    table = _read(file)
    rows, names = table.num_rows, table.column_names
    name, how = chance.choice(names), chance.choice(("null", "other", "rows", "type", "name", "not UTF-8"))
    octets = pa.array([b"\xff\xfe"] * rows, pa.binary())
    columns = {
        "null": pa.array([None] * rows, pa.string()),
        "other": pa.array(["\0x"] * rows, pa.string()),
        "type": pa.array(range(rows), pa.int64()),
        "not UTF-8": pa.Array.from_buffers(pa.string(), rows, octets.buffers()),
    }
    if how == "rows":
        table = table.slice(0, max(0, rows - chance.randrange(1, 4)))
    elif how == "name":
        table = table.rename_columns([f"x{each}" if each == name else each for each in names])
    else:
        table = table.set_column(names.index(name), name, columns[how])
    _write(file, table)
    return f"{name} {how}"


def _change_bytes(file: Path, chance: Random) -> str:
    data = bytearray(file.read_bytes())
    count = chance.choice((1, 1, 4, 64))
    for _ in range(count):
        data[chance.randrange(len(data))] = chance.randrange(256)
    if chance.random() < 0.2:
        data = data[: chance.randrange(len(data))]
    file.write_bytes(data)
    return f"{count} of {len(data)}"


_CHANGES = {"array": _change_array, "header": _change_header, "ids": _change_ids, "bytes": _change_bytes}


def _change_manifest(manifest: dict[str, Any], entry: dict[str, Any], chance: Random) -> str:
    segments = manifest["segments"]
    how = chance.choice(("many", "twice", "file", "missing", "order", "rows", "other"))
    if how == "missing":
        del entry[chance.choice(list(entry))]
    elif how == "rows":
        entry[chance.choice(("rows", "removed", "kind"))] = chance.choice((10**12, -1, "x", None, []))
    elif how == "file":
        entry["file"] = chance.choice(("../../etc/passwd", "/etc/passwd", "segments/..", "segments/x\n", 5))
    else:
        other = chance.choice((None, 5, {}, [], [5], [None]))
        whole = {"many": [entry] * 2_000, "twice": [*segments, entry], "order": segments[::-1]}
        manifest["segments"] = whole.get(how, other)
    return how


def _read(file: Path) -> pa.Table:
    return pa.ipc.open_file(pa.BufferReader(file.read_bytes())).read_all()


def _write(file: Path, table: pa.Table) -> None:
    with pa.ipc.new_file(str(file), table.schema) as writer:
        writer.write_table(table.combine_chunks())


def use(folder: Path) -> str:
    """Open and match a folder: ``refused`` or ``matched``. Whatever else it raises is a fault."""
    try:
        snapshot = sr.Snapshot.open(folder)
    except sr.SnapshotError as error:
        assert str(error) and "\n" not in str(error), "an error without a sentence"
        return "refused"
    matches = snapshot.match(messages())
    assert len(matches) == 300 and len(repr(snapshot)) < 1_000
    snapshot.ids.take(matches.ordinals)
    return "matched"


def _child(pipe: Connection, folders: list[Path], use: Callable[[Path], str]) -> None:
    faulthandler.disable()  # the parent says what ended
    for folder in folders:
        signal.alarm(_SECONDS)
        try:
            outcome = use(folder)
        except BaseException as error:  # whatever it is, the parent reports it
            outcome = f"{type(error).__name__}: {error}"
        pipe.send(outcome)


def tried(folders: list[Path], use: Callable[[Path], str] = use) -> list[str]:
    """Use each folder in a process of its own, or in one with those before it that ended well."""
    outcomes: list[str] = []
    while len(outcomes) < len(folders):
        here, there = _fork.Pipe(duplex=False)
        child = _fork.Process(target=_child, args=(there, folders[len(outcomes) :], use))
        child.start()
        there.close()
        try:
            while True:
                if not here.poll(_SECONDS + 10):  # it hangs before its alarm is set
                    child.kill()
                outcomes.append(here.recv())
        except EOFError:
            child.join()
        if child.exitcode:
            outcomes.append(f"ended by signal {-child.exitcode}" if child.exitcode < 0 else "ended")
    return outcomes


def run(root: Path, seed: int, copies: int) -> Counter[str]:
    """Try so many hostile copies. Raises AssertionError with all that went wrong."""
    original, chance = root / "sound", Random(seed)
    sound(original)
    table = _read(next(original.glob("segments/*-base.arrow")))
    empty = [name for name in t.Tables._fields if not len(table[name].chunk(0).values)]
    assert not empty, empty
    assert use(original) == "matched"  # compiled before the first fork
    counts: Counter[str] = Counter()
    faults: list[str] = []
    for first in range(0, copies, 50):
        tries = {root / f"copy-{number}": "" for number in range(first, min(first + 50, copies))}
        for copy in tries:
            shutil.copytree(original, copy)
            tries[copy] = hostile(copy, chance)
        for (copy, name), outcome in zip(tries.items(), tried(list(tries)), strict=True):
            counts[outcome if outcome in ("refused", "matched") else "faults"] += 1
            if outcome not in ("refused", "matched"):
                faults.append(f"{name}: {outcome}")
            shutil.rmtree(copy)
    assert not faults, "\n".join([*faults, str(counts)])
    return counts


if __name__ == "__main__":
    program("hostile copies of a snapshot folder", run, copies=1_000)
