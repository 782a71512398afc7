"""Forms of the result column: an array of ordinals, the same ordinals packed in bytes, or ids.

Spark's own functions read ``array<int>``, but Spark copies it element by element. ``binary`` holds the same
ordinals as in memory, four bytes each, little-endian, and is copied as a whole. With few ordinals per message
both cost the same; from about `PACKED_FROM` packing is cheaper (processor time of an array relative to packed
on the way from Python to the JVM: 1.0 at 9 ordinals per message, 1.4 at 87, 1.6 at 300). `deliveries` reads
either; `unpack` converts packed ordinals to an array. ``ids`` are the subscriptions' ids, ``array<string>``,
from the snapshot's Arrow column: more bytes, but independent of the revision.

A worker that reads the messages itself (`match_files`) also chooses how many to hand over at once: as many as
fit the processor's caches. A shorter encoding of ordinals does not pay: the four bytes take about a
nanosecond to cross, less than sorting them or finding runs in them.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType

from selectroute.clauses.access import equalities
from selectroute.index.snapshot import Snapshot
from selectroute.index.specification import prepare
from selectroute.match.match import id_lists
from selectroute.selector.arguments import check_argument
from selectroute.selector.dialect import EXTENDED
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import UNLIMITED

Ints: TypeAlias = npt.NDArray[np.int64]
Ordinals: TypeAlias = npt.NDArray[np.int32]

SLICE = 1 << 20
"""Deliveries per block: bounds memory if each message of a batch matches thousands of subscriptions."""

_LARGEST_LIST_OFFSET = 2**31 - 1


class TooManyMatchesError(SelectRouteError):
    """More matches in one batch than a 32-bit Arrow list can hold."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Block of deliveries: ``rows[i]`` is the message's row, ``ordinals[i]`` the subscription."""

    rows: Ints
    ordinals: Ordinals


def pairs(offsets: Ints, ordinals: Ordinals, most: int = SLICE) -> Iterator[Pairs]:
    """Yield all (message, subscription) pairs in order, at most ``most`` at once.

    Takes matches as offsets int64[rows + 1] and ordinals int32[total]; linear in the matches.
    """
    total = int(offsets[-1])
    for start in range(0, total, most):
        stop = min(start + most, total)
        first = int(np.searchsorted(offsets, start, side="right")) - 1
        last = int(np.searchsorted(offsets, stop, side="left"))
        # The matches of one message may be split between two blocks.
        within = np.clip(offsets[first : last + 1], start, stop)
        rows = np.repeat(np.arange(first, last, dtype=np.int64), np.diff(within))
        yield Pairs(rows, ordinals[start:stop])


def ids_of(ordinals: Ordinals, ids: Any) -> Any:
    """Return the ids of these ordinals, dictionary-encoded over only the ids that occur.

    ``ids`` is the snapshot's column of ids: a dictionary of all of them would be written to each file.
    """
    if len(ids) <= 8 * len(ordinals):
        occurs = np.zeros(len(ids), dtype=np.bool_)
        occurs[ordinals] = True
        used = np.flatnonzero(occurs)
        codes = (np.cumsum(occurs, dtype=np.int32) - np.int32(1))[ordinals]
    else:
        # Few deliveries among many subscriptions: sorting them costs less than a pass over the ids.
        used, codes = np.unique(ordinals, return_inverse=True)
        codes = codes.astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), ids.take(pa.array(used)))


def list_array(offsets: Ints, ordinals: Ordinals) -> Any:
    """Return matches as ``list<int32>``, one list a message, sharing the ordinals' memory.

    Raises:
        TooManyMatchesError: the batch has 2^31 matches or more.
    """
    if int(offsets[-1]) > _LARGEST_LIST_OFFSET:
        raise TooManyMatchesError(
            f"{len(offsets) - 1} messages have {int(offsets[-1])} matches, more than one Arrow batch "
            "can hold (2^31 - 1): lower spark.sql.execution.arrow.maxRecordsPerBatch"
        )
    # NumPy narrows the offsets ten times as fast as Arrow, which checks each.
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(ordinals, pa.int32()))


def list_offsets(lists: Any) -> tuple[Ints, Ordinals]:
    """Return a ``list<int32>`` column as offsets and ordinals; a NULL list is an empty one."""
    return _offsets(pc.list_value_length(lists)), lists.flatten().to_numpy(zero_copy_only=False)


def _offsets(lengths: Any) -> Ints:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False), out=offsets[1:])
    return offsets


Output: TypeAlias = Literal["array", "packed", "auto", "ids"]
"""Result of `route` and `match_files`: ordinals as ``array<int>`` or ``binary``, or as the cheaper of the two
for the snapshot; or ids, ``array<string>``.
"""

Form: TypeAlias = Literal["array", "packed", "ids"]

PACKED_FROM = 32
"""Ordinals per message from which packing is clearly cheaper."""

ORDINALS = ArrayType(IntegerType(), containsNull=False)
"""A declaration without NULLs doubles the rate from Python to the JVM (measured at 88 ordinals a message)."""

PACKED = BinaryType()

IDS = ArrayType(StringType(), containsNull=False)

TYPES: dict[str, DataType] = {"array": ORDINALS, "packed": PACKED, "ids": IDS}
"""The type of the column in each form."""

PORTION = 1 << 18
"""Ordinals that `match_files` hands over at once: a megabyte, or those of one message. At 850 per message
this lowers the processor time of a message by 40 to 50 %, in either form."""

_SAMPLE = 4_000
_MOST_BYTES = 2**31 - 1


class OutputError(SelectRouteError):
    """Unknown form of output."""


@dataclass(frozen=True, slots=True)
class OutputChoice:
    """Choice of ``auto`` for a snapshot, and its reason.

    ``expected`` is the expected number of subscriptions that a message goes to; ``str()`` is a sentence.
    """

    form: Literal["array", "packed"]
    expected: float

    def __str__(self) -> str:
        side = "at least" if self.form == "packed" else "fewer than"
        return (
            f"{self.form}: a message is expected to go to about {self.expected:,.3g} subscriptions, "
            f"{side} the {PACKED_FROM} from which packed ordinals cross to the JVM at less cost than an array"
        )


_choices: weakref.WeakKeyDictionary[Snapshot, OutputChoice] = weakref.WeakKeyDictionary()


def explain_output(snapshot: Snapshot) -> OutputChoice:
    """Return the form that ``output="auto"`` chooses for a snapshot.

    The estimate assumes that a message meets the equalities of a selector as often as another selector has
    the same ones, and half of the other conditions. It uses a sample of the selectors, once for a snapshot.
    """
    check_argument(snapshot, Snapshot, "snapshot", "a Snapshot: sr.Snapshot.open(folder)")
    choice = _choices.get(snapshot)
    if choice is None:
        expected = _expected(snapshot)
        choice = OutputChoice("packed" if expected >= PACKED_FROM else "array", expected)
        _choices[snapshot] = choice
    return choice


def form_of(output: Output, snapshot: Snapshot) -> Form:
    """Return the form of an output. Raises `OutputError` for an unknown one."""
    check_output(output)
    return explain_output(snapshot).form if output == "auto" else output


def check_output(output: object) -> None:
    """Raise `OutputError` for an unknown form."""
    if not isinstance(output, str) or output not in get_args(Output):
        raise OutputError(f"the output must be array, packed, auto or ids, not {output!r}")


def is_ordinals(type_: DataType) -> bool:
    """Return whether a column of this type can be the ordinals of `route` or `match_files`."""
    if isinstance(type_, ArrayType):
        return isinstance(type_.elementType, IntegerType)
    return isinstance(type_, BinaryType)


def is_ids(type_: DataType) -> bool:
    """Return whether a column of this type can be the ids of `route` or `match_files`."""
    return isinstance(type_, ArrayType) and isinstance(type_.elementType, StringType)


def written(form: str, offsets: Ints, ordinals: Ordinals, ids: Any = None) -> pa.Array:
    """Return the matches of a batch in a form, one row per message, without copying the ordinals.

    ``ids`` is the id of each ordinal, for the form of that name.

    Raises:
        TooManyMatchesError: the batch has more matches than one Arrow batch of this form can hold.
    """
    if form == "array":
        return list_array(offsets, ordinals)
    if form == "ids":
        spelled = id_lists(ids, offsets, ordinals)
        if pa.types.is_large_list(spelled.type):
            raise TooManyMatchesError(
                f"{len(offsets) - 1} messages have {len(ordinals)} matches, whose ids are more than one "
                "Arrow batch can hold: lower spark.sql.execution.arrow.maxRecordsPerBatch"
            )
        return spelled
    octets = ordinals.astype("<i4", copy=False)
    if octets.nbytes > _MOST_BYTES:
        raise TooManyMatchesError(
            f"{len(offsets) - 1} messages have {len(ordinals)} matches, more than one Arrow batch can hold "
            "packed (2^29 - 1): lower spark.sql.execution.arrow.maxRecordsPerBatch"
        )
    ends = pa.py_buffer((offsets * 4).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, ends, pa.py_buffer(octets)])


def portions(
    form: str,
    offsets: Ints,
    ordinals: Ordinals,
    most: int = PORTION,
    ids: Any = None,
) -> Iterator[tuple[int, Any]]:
    """Yield the matches of a batch in parts: the row of a part's first message, and its column in a form.

    A column holds at most ``most`` ordinals, or those of one message; the ordinals are not copied.
    """
    start, rows = 0, len(offsets) - 1
    while start < rows:
        fitting = int(np.searchsorted(offsets, offsets[start] + most, side="right")) - 1
        stop = max(start + 1, fitting)
        own = ordinals[offsets[start] : offsets[stop]]
        yield start, written(form, offsets[start : stop + 1] - offsets[start], own, ids)
        start = stop


def read(column: Any) -> tuple[Ints, Ordinals]:
    """Return a result of `route` or `match_files`, in either form of ordinals, as offsets and ordinals.

    NULL is a message without matches.
    """
    if not pa.types.is_binary(column.type):
        return list_offsets(column)
    offsets = _offsets(pc.binary_length(column)) // 4
    # A slice shares the bytes before and after it; a NULL may have bytes, too.
    whole = column.fill_null(b"") if column.null_count else column
    _, ends, data = whole.buffers()
    first = np.frombuffer(ends, np.int32)[whole.offset] if len(whole) else 0
    total = int(offsets[-1])
    ordinals = np.frombuffer(data, "<i4", total, first) if total else np.zeros(0, np.int32)
    return offsets, ordinals


def unpack(packed: Column) -> Column:
    """Convert a packed column to ``array<int>``. The column crosses to Python and back."""
    check_argument(packed, Column, "packed", "a column: routed['subscriptions']")

    def unpacked(column: pa.Array) -> pa.Array:
        return list_array(*read(column))

    return arrow_udf(unpacked, ORDINALS)(packed)  # type: ignore[call-overload, no-any-return]  # wants no kind


def _expected(snapshot: Snapshot) -> float:
    """Estimate how many subscriptions a message goes to."""
    table = snapshot.subscriptions
    rows = np.arange(len(table)) if snapshot.dead is None else np.flatnonzero(~snapshot.dead)
    if len(rows) > _SAMPLE:
        rows = np.random.default_rng(0).choice(rows, _SAMPLE, replace=False)
    if not len(rows):
        return 0.0
    met: Counter[frozenset[object]] = Counter()
    everything = 0
    for row in table.take(pa.array(rows)).to_pylist():
        extended = row["seltype"] == EXTENDED
        text, topic, name = row["selector"], row["topic"], row["dialect"]
        clauses = prepare("any", text, topic, name, extended, UNLIMITED).clauses
        if any(not clause.literals for clause in clauses):
            everything += 1
            continue
        for clause in clauses:
            met[frozenset(equalities(clause).keys.items())] += 1
    # Two of the sample have the same equalities this often; every message meets a clause without any.
    count = max(2, met.total())
    scanned = met.pop(frozenset(), 0)
    alike = sum(number * (number - 1) for number in met.values()) / (count * (count - 1))
    scale = len(snapshot) / len(rows)
    return everything * scale + (scanned * scale + alike * met.total() * scale) / 2
