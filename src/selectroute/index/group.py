"""Subscriptions of one shape: one template, and a column for each literal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index import tables as t
from selectroute.index.shapes import Kind
from selectroute.index.template import Slot, Template
from selectroute.selector.values import Double, Long, Value


@dataclass(frozen=True, slots=True)
class Group:
    """Subscriptions of one shape: where they are, and the literals of each slot as a column."""

    template: Template
    dialect: str
    ordinals: t.Array
    slots: list[pa.Array | t.Array]  # strings; or int64, float64

    def value(self, number: int, row: int) -> Value:
        """The literal of one subscription in a slot, without its sign."""
        column = self.slots[number]
        if isinstance(column, pa.Array):
            text: str = column[row].as_py()
            return text
        return Long(int(column[row])) if column.dtype == np.int64 else Double(float(column[row]))

    def numbers(self, slot: Slot) -> t.Array:
        """The literals of a slot of numbers, with their signs."""
        column = self.slots[slot.number]
        return -column if slot.negated else column

    def only(self, rows: t.Array) -> Group:
        """Some of the subscriptions."""
        slots = [
            column.take(pa.array(rows)) if isinstance(column, pa.Array) else column[rows]
            for column in self.slots
        ]
        return replace(self, ordinals=self.ordinals[rows], slots=slots)


def literals(kind: Kind, texts: pa.Array) -> pa.Array | t.Array:
    """What stands in a slot, as values: strings, int64 or float64."""
    match kind:
        case Kind.STRING:
            return pc.replace_substring(pc.utf8_slice_codeunits(texts, 1, -1), pattern="''", replacement="'")
        case Kind.INTEGER:
            return texts.cast(pa.int64()).to_numpy()
        case Kind.DECIMAL:
            return texts.cast(pa.float64()).to_numpy()
        case Kind.LEVEL:
            return texts
