"""Matches to deliveries: one row for each pair of message and subscription, in NumPy and Arrow throughout.

No Python object is created per message or match. Used by `deliveries` on a DataFrame and by the fan-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.selector.errors import SelectRouteError

SLICE = 1 << 20
"""Deliveries per block: bounds memory if each message of a batch matches thousands of subscriptions."""

_LARGEST_LIST_OFFSET = 2**31 - 1


class TooManyMatchesError(SelectRouteError):
    """More matches in one batch than a 32-bit Arrow list can hold."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Block of deliveries: ``rows[i]`` is the message's row, ``ordinals[i]`` the subscription."""

    rows: npt.NDArray[np.int64]
    ordinals: npt.NDArray[np.int32]


def pairs(
    offsets: npt.NDArray[np.int64], ordinals: npt.NDArray[np.int32], most: int = SLICE
) -> Iterator[Pairs]:
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


def ids_of(ordinals: npt.NDArray[np.int32], ids: Any) -> Any:
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


def list_array(offsets: npt.NDArray[np.int64], ordinals: npt.NDArray[np.int32]) -> Any:
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


def list_offsets(lists: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return a ``list<int32>`` column as offsets and ordinals; a NULL list is an empty one."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, lists.flatten().to_numpy(zero_copy_only=False)
