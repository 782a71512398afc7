"""The dead letters that a replay takes: which of a batch's are left, and the list of them for its workers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from selectroute.spark.job import JobError
from selectroute.spark.replay_request import Wanted
from selectroute.spark.sinks import DEAD_LETTERS

LETTERS: Final = pa.schema(
    [
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("source", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("subscription", pa.string()),
    ]
)
"""Why it is one; where its message stands, the offset NULL for a file as a whole; whose it is, if it is a
delivery."""

_SCOPES: Final = b"selectroute-scopes"


class Scope(NamedTuple):
    """Who may get a message that was a dead letter: only these, if that is said, and none of the others."""

    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cover:
    """What an earlier replay took of its batches: its letters, but for those whose files were gone."""

    wanted: Wanted
    missing: frozenset[str]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Cover:
        """Return what the record in a replay's commit says."""
        missing = frozenset(name for one in record["missing"] for name in one["files"])
        return cls(Wanted.from_json(record["wanted"]), missing)

    def mask(self, letters: pa.Table) -> npt.NDArray[np.bool_]:
        """Which of the letters of one of its batches it took."""
        found = self.wanted.mask(letters)
        if self.missing:
            gone = pa.array(sorted(self.missing), pa.string())
            found &= ~pc.is_in(letters["source"], gone).to_numpy()
        return found


def batches_with_letters(output: Path) -> set[int]:
    """Return the batches whose dead letters are there, committed or not."""
    found = set()
    for folder in (output / DEAD_LETTERS).glob("batch=*"):
        text = folder.name.removeprefix("batch=")
        if text.removeprefix("-").isdecimal():
            found.add(int(text))
    return found


def letters_left(output: Path, batch: int, wanted: Wanted, covers: Sequence[Cover]) -> pa.Table:
    """Return the letters of a batch that are wanted and that no replay took, as `LETTERS`; none if its folder
    was moved away.

    Raises:
        JobError: a file of theirs can't be read.
    """
    parts = []
    for path in sorted((output / DEAD_LETTERS / f"batch={batch}").glob("*.parquet")):
        try:
            # Opened as a file: under its path, Arrow would make a column of the folder's name.
            with pa.OSFile(str(path), "rb") as file:
                table = pq.ParquetFile(file).read(columns=LETTERS.names)
        except FileNotFoundError:
            continue
        except (pa.ArrowException, OSError) as error:
            raise JobError(f"{path} can't be read: {error}") from error
        parts.append(_plain(table))
    if not parts:
        return LETTERS.empty_table()
    table = pa.concat_tables(parts)
    mask = wanted.mask(table)
    for cover in covers:
        mask &= ~cover.mask(table)
    return table.filter(pa.array(mask)).cast(LETTERS)


def _plain(table: pa.Table) -> pa.Table:
    columns = [
        column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.schema.names)


def messages_in(letters: pa.Table) -> int | None:
    """Return of how many messages these are letters; None if one is of a file as a whole."""
    if letters["offset"].null_count:
        return None
    return len(letters.group_by(["source", "partition", "offset"]).aggregate([]))


def write_recalled(path: Path, letters: pa.Table, scopes: Sequence[Scope], codes: Any) -> None:
    """Write the list that a replay's workers read: each letter, and the place of its scope in ``scopes``."""
    table = letters.append_column("scope", pa.array(codes, pa.int32()))
    table = table.replace_schema_metadata({_SCOPES: json.dumps(scopes).encode()})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_recalled(path: Path) -> tuple[pa.Table, list[Scope]]:
    """Return what `write_recalled` wrote."""
    with pa.OSFile(str(path), "rb") as file:
        table = pa.ipc.open_file(file).read_all()
    found = json.loads(table.schema.metadata[_SCOPES])
    return table, [Scope(None if only is None else tuple(only), tuple(without)) for only, without in found]
