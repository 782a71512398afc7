"""Arrays of a snapshot, and the numbers shared by its writers and the kernel.

A message finds its matches like this (one leaf is drawn; ``a:b`` is the slice from a to b)::

    codes of the message    postings of attribute 0's code 5     leaf 7
    attribute 0  →  5   ──→ 30: attribute 2, slots 64:72 ─┐  ┌─ group 11  entries 90:94, sorted by bound:
    attribute 2  →  17  ────→ the slot of 17 there → 7 ───┴──┤            e.g. attribute 4 > bound
    attribute 3  →  -1 (no clause has its value: no cost)    └─ group 12  entries 94:95, with a residual
    entries   90      91      92      93      94
    bound     100     250     250     9000    0        ← a prefix of group 11 holds: one binary search
    residual  -1      -1      -1      -1      3
    ordinal   12      7       40      9       12       → copied out; several each, if selectors are alike

A pair of attributes is filed under its *anchor*, the attribute that has more of the pair's keys: each code of
the anchor has a posting for each pair in which it occurs. So the cost of a message depends on the values that
it shares with clauses, not on the pairs in use. A clause with one attribute has its leaf at the code.

Leaf 0 is the scan list: it has no key and every message visits it.

The last leaves are *divided*, see ``index.compile.hot_keys``: a message that finds one also looks up its
postings, which lead to leaves beneath it; these may be divided again.

Intervals are sorted by their lower end; those that hold are found within a prefix by the maxima of the upper
ends over 16 entries, over 16 of these maxima, and so on::

    high     7 9 3 … │ 2 2 1 … │ …     16 entries each, of one group; see `HIGH`
    maxima   9         2         …     each level is followed by the one above, until one has 16 or fewer

A *code* numbers the keys of one attribute (see ``clauses.access``): ``ABSENT`` is a value that no clause has,
the next three are the same for all attributes, the others are assigned in the order of the constants.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple, get_type_hints

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

Bool = Annotated[Array, np.bool_]
Int8 = Annotated[Array, np.int8]
Int32 = Annotated[Array, np.int32]
Int64 = Annotated[Array, np.int64]
UInt8 = Annotated[Array, np.uint8]
UInt16 = Annotated[Array, np.uint16]
UInt64 = Annotated[Array, np.uint64]
Float64 = Annotated[Array, np.float64]

MATRIX: Final = -1
"""Width of an array of two dimensions, after its type: ``Annotated[Int64, MATRIX]`` if it varies."""

# -- type tags of a lane; the `tag` of a mixed-type column. The order matters: numbers ascend by their width,
# and strings and what has their layout come after all numbers
NULL: Final = 0
BOOLEAN: Final = 1
BYTE: Final = 2
SHORT: Final = 3
INT: Final = 4
LONG: Final = 5
FLOAT: Final = 6
DOUBLE: Final = 7
STRING: Final = 8
BYTES: Final = 9
MISMATCH: Final = 10  # on the stack of a program only: arithmetic on a non-number
VOID: Final = 11  # on the stack of a program only: makes the whole selector false
UNSUPPORTED: Final = 12  # of a type that no property has: not NULL, unlike every value; its string is empty

# -- codes
ABSENT: Final = -1
CODE_NULL: Final = 0
CODE_FALSE: Final = 1
CODE_TRUE: Final = 2
FIRST_CODE: Final = 3

# -- flags of a group
SORTED: Final = 1  # the entries are sorted by bound, and the group's range decides how many of them hold
WANTED: Final = 2  # the range must be TRUE; else FALSE
RESIDUAL: Final = 4  # each entry has a residual to judge
REPEATED: Final = 8  # the subscription has other clauses, too: emit it once a message
OPERATOR_SHIFT: Final = 4  # two bits: < <= > >=, in the order of RANGE_OPERATORS, upper ends first
BOUND_SHIFT: Final = 6  # two bits: the bounds are longs, doubles, floats
STRICT: Final = 256  # unlike types make the whole selector false: then no range holds, WANTED or not
VALID_NAMES: Final = 512  # skip messages whose property names break a rule
INTERVAL: Final = 1024  # a second range of the same attribute bounds it above, see `high`
EXCLUSIVE: Final = 2048  # the upper end is not part of the interval
UNIFORM: Final = 4096  # all entries have the same residual, which is judged once
FLAG_BITS: Final = 16
RANGE_OPERATORS: Final = ("<", "<=", ">", ">=")
BOUND_LONG: Final = 0
BOUND_DOUBLE: Final = 1
BOUND_FLOAT: Final = 2
HIGH: Final = 16
"""Upper ends of intervals that share one maximum in the level above."""

# -- the second attribute of a tuple without one
ALONE: Final = -1
PREFIXES: Final = -2  # the leaves are of the first one's prefixes
BENEATH: Final = -3  # the leaves are reached from those of another tuple, which are divided by the first one

# -- operations of a program, a stack machine over (tag, bits) values; UNKNOWN is NULL, TRUE and FALSE are
# booleans. The order matters: the kernel compares an operation with the last one of each kind
LOAD: Final = 0  # push the lane of `attribute`
CONSTANT: Final = 1  # push `argument` with tag `attribute`
ADD: Final = 2
SUBTRACT: Final = 3
MULTIPLY: Final = 4
DIVIDE: Final = 5
NEGATE: Final = 6
PLUS: Final = 7
EQUAL: Final = 8
UNEQUAL: Final = 9
LESS: Final = 10
LESS_EQUAL: Final = 11
GREATER: Final = 12
GREATER_EQUAL: Final = 13
AS_TRUTH: Final = 14  # a bare identifier as a condition: a value that is not boolean or NULL counts as FALSE
NOT: Final = 15
AND: Final = 16
OR: Final = 17
IS_NULL: Final = 18  # push whether `attribute` is NULL
IS_KEY: Final = 19  # `attribute` = the constant with code `argument`
IS_NOT_KEY: Final = (
    20  # <>, not of numbers: the constant's code in the low 32 bits of `argument`, its tag above
)
IN: Final = 21  # `attribute` IN the set `argument`
NOT_IN: Final = 22
LIKE: Final = 23  # `attribute` LIKE the pattern `argument`
NOT_LIKE: Final = 24
LEVELS: Final = 25  # the topic string `attribute` has the levels of the pattern `argument`
BETWEEN: Final = 26  # of three operands: FALSE if one is NULL, VOID if the others are not numbers
NOT_BETWEEN: Final = 27  # the opposite
CHECK_TYPE: Final = 28  # make the truth on top VOID unless the tag of `attribute` is in the bits `argument`
HAS_TYPE: Final = 29  # push whether the tag of `attribute` is in the bits `argument`
IS_SOUND: Final = 30  # replace the truth on top by whether it is not VOID

# -- the dialect's rules for arithmetic, comparisons and AS_TRUTH, in the `attribute` of the step
VOIDS: Final = 1  # unlike types, and arithmetic on NULL, are VOID
POSITIVE_ZERO: Final = 2  # negative zero is zero in arithmetic
SAME_TYPE: Final = 4  # only numbers of one type compare

# -- symbols of a LIKE pattern (others: code points), and of a levels pattern (others: `level_bytes` strings)
ANY_ONE: Final = -1
ANY_MANY: Final = -2


EMPTY_SLOT: Final = 2**64 - 1
"""Empty slot of `string_slot`; no string has this number."""

MOST_STRINGS: Final = 2**32 - 1
"""The lower half of a `string_slot`, which has the number of the string."""


class Offsets(NamedTuple):
    """Offsets of slices: one for ``each`` of some things, and together they are all ``of`` another kind."""

    each: str
    of: str | None = None


class Tables(NamedTuple):
    """Arrays of one segment. ``x_first[i] : x_first[i + 1]`` is the slice of ``x`` that belongs to i.

    After the type of its elements comes what an array has an element for, or its `Offsets`, and its width if
    it has two dimensions. ``index.invariants`` checks all of these.
    """

    # access keys: tuples of one attribute or two, and their leaves. The codes of an attribute that is alone
    # or an anchor, from `code_low` on, have a leaf (-1: none) and postings. A posting has an open-addressing
    # table of a power of two slots, at most half full, for the codes of its attribute.
    tuple_attributes: Annotated[Int32, "tuple", 2]
    tuple_above: Annotated[Int32, "tuple"]  # whose leaves lead here if the second one is BENEATH, else -1
    tuple_leaf: Annotated[Int32, Offsets("tuple")]  # then come the divided leaves
    divided_tuple: Annotated[Int32, "divided leaf"]  # the tuple that each belongs to
    code_low: Annotated[Int32, "attribute"]
    code_first: Annotated[Int64, Offsets("attribute", "code")]
    code_leaf: Annotated[Int32, "code"]
    code_posting: Annotated[Int32, Offsets("code and divided leaf", "posting")]
    posting_attribute: Annotated[Int32, "posting"]
    posting_filter: Annotated[UInt64, "posting"]  # bit ``code & 63`` is set for each code that has a slot
    slot_first: Annotated[Int64, Offsets("posting", "slot")]
    slot: Annotated[Int64, "slot"]  # leaf << 32 | code, or -1

    # prefixes of strings, for each attribute ascending by their bytes, see ``index.compile.prefixes``
    prefix_first: Annotated[Int64, Offsets("attribute", "prefix")]
    prefix_parent: Annotated[Int32, "prefix"]  # the longest other prefix of this prefix, or -1
    prefix_leaf: Annotated[Int32, "prefix"]
    prefix_key: Annotated[Int64, "prefix"]  # the first eight bytes as a number, ascending for each attribute
    prefix_byte_first: Annotated[Int64, Offsets("prefix", "byte of a prefix")]
    prefix_bytes: Annotated[UInt8, "byte of a prefix"]  # UTF-8

    # leaves have groups, groups have entries; invariant: every entry belongs to one group of one leaf
    group_first: Annotated[Int32, Offsets("leaf", "group")]
    group_flags: Annotated[UInt16, "group"]
    group_attribute: Annotated[Int32, "group"]  # of a SORTED group
    entry_first: Annotated[Int64, Offsets("group", "entry")]
    entry_bound: Annotated[Int64, "entry"]  # a long, or the bits of a double; ascend within a SORTED group
    entry_residual: Annotated[Int32, "entry"]  # in a RESIDUAL group, else -1
    entry_ordinal: Int32  # [entries], the subscription; [places] if entries are shared
    ordinal_first: Int64  # [entries + 1], into entry_ordinal: who shares an entry; empty if each has one
    group_high: Annotated[Int32, "group"]  # of an INTERVAL group where its ends begin in `high`, else -1
    high: Int64  # […], longs, or doubles in the order of their values; then their maxima, see above

    # a residual is a conjunction of terms: programs with their wanted truth
    term_first: Annotated[Int32, Offsets("residual", "term")]
    term_program: Annotated[Int32, "term"]
    term_wanted: Annotated[UInt8, "term"]  # 0 or 1; plus 2 where several residuals have the program
    step_first: Annotated[Int32, Offsets("program", "step")]
    step: Annotated[Int64, "step", 3]  # operation, attribute, argument
    item_first: Annotated[Int32, Offsets("set or pattern", "item")]
    item: Annotated[Int32, "item"]  # codes, ascending within a set, or the symbols of a pattern
    level_first: Annotated[Int32, Offsets("level string", "byte of a level")]
    level_bytes: Annotated[UInt8, "byte of a level"]

    # the constants: for each attribute a hash table of strings, and sorted numbers
    string_slot_first: Annotated[Int64, Offsets("attribute", "string slot")]
    string_slot: Annotated[UInt64, "string slot"]  # upper half of the string's hash, string; or EMPTY_SLOT
    string_code: Annotated[Int32, "string"]
    string_tag: Annotated[UInt8, "string"]  # STRING or BYTES
    string_first: Annotated[Int64, Offsets("string", "byte of a string")]
    string_bytes: Annotated[UInt8, "byte of a string"]  # UTF-8 or a byte string's own
    number_first: Annotated[Int64, Offsets("attribute", "number")]
    number: Annotated[Float64, "number"]  # ascending for each attribute
    number_code: Annotated[Int32, "number"]
    large_float_first: Annotated[Int64, Offsets("attribute", "large float")]
    large_float: Annotated[Float64, "large float"]  # ascending for each attribute
    large_float_code: Annotated[Int32, "large float"]


_NOTES: Final = {
    name: hint.__metadata__ for name, hint in get_type_hints(Tables, include_extras=True).items()
}
DTYPES: Final[dict[str, np.dtype[Any]]] = {name: np.dtype(notes[0]) for name, notes in _NOTES.items()}
"""Element type of each array."""

COUNTED: Final[dict[str, str | Offsets]] = {name: notes[1] for name, notes in _NOTES.items() if notes[1:]}
"""What an array has an element for, or the offsets that it has; the others are checked one by one."""

SHAPES: Final[dict[str, tuple[int, int]]] = {
    name: (-1, notes[2]) for name, notes in _NOTES.items() if notes[2:]
}
"""Shapes of the arrays that have two dimensions."""


def as_array(name: str, values: object) -> Array:
    """Return `values` as the array `name` of `Tables`: its type and shape, contiguous and read-only.

    Mapped files are read-only, too; one kind of array everywhere means one compiled kernel.
    """
    array = np.ascontiguousarray(np.asarray(values).astype(DTYPES[name], copy=False))
    array = array.reshape(SHAPES.get(name, (-1,)))
    array = array.view()
    array.flags.writeable = False
    return array
