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

The last leaves are *divided*, see ``index.build.hot_keys``: a message that finds one also looks up its
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

# -- type tags of a lane; the `tag` of a mixed-type column
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
OPERATOR_SHIFT: Final = 4  # two bits: < <= > >=
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
PREFIXES: Final = -2  # the leaves are of the first one's prefixes, see ``prefixes``
BENEATH: Final = -3  # the leaves are reached from those of another tuple, which are divided by the first one

# -- operations of a program, a stack machine over (tag, bits) values; UNKNOWN is NULL, TRUE and FALSE are
# booleans
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


class Tables(NamedTuple):
    """Arrays of one segment. ``x_first[i] : x_first[i + 1]`` is the slice of ``x`` that belongs to i."""

    # access keys: tuples of one attribute or two, and their leaves. The codes of an attribute that is alone
    # or an anchor, from `code_low` on, have a leaf (-1: none) and postings. A posting has an open-addressing
    # table of a power of two slots, at most half full, for the codes of its attribute.
    tuple_attributes: Int32  # [tuples, 2]
    tuple_above: Int32  # [tuples], the tuple whose leaves lead here if the second one is BENEATH, else -1
    tuple_leaf: Int32  # [tuples + 1], then come the divided leaves
    divided_tuple: Int32  # [divided leaves], the tuple that each belongs to
    code_low: Int32  # [attributes]
    code_first: Int64  # [attributes + 1], into code_leaf
    code_leaf: Int32  # [codes]
    code_posting: Int32  # [codes + divided leaves + 1], into posting_attribute
    posting_attribute: Int32  # [postings]
    posting_filter: UInt64  # [postings], bit ``code & 63`` is set for each code that has a slot
    slot_first: Int64  # [postings + 1]
    slot: Int64  # [slots], leaf << 32 | code, or -1

    # prefixes of strings, for each attribute ascending by their bytes, see ``prefixes``
    prefix_first: Int64  # [attributes + 1]
    prefix_parent: Int32  # [prefixes], the longest other prefix of this prefix, or -1
    prefix_leaf: Int32  # [prefixes]
    prefix_key: Int64  # [prefixes], the first eight bytes as a number, ascending for each attribute
    prefix_byte_first: Int64  # [prefixes + 1], into prefix_bytes
    prefix_bytes: UInt8  # [bytes], UTF-8

    # leaves have groups, groups have entries; invariant: every entry belongs to one group of one leaf
    group_first: Int32  # [leaves + 1]
    group_flags: UInt16  # [groups]
    group_attribute: Int32  # [groups], of a SORTED group
    entry_first: Int64  # [groups + 1]
    entry_bound: Int64  # [entries], a long, or the bits of a double; ascending within a SORTED group
    entry_residual: Int32  # [entries], in a RESIDUAL group, else -1
    entry_ordinal: Int32  # [entries], the subscription; [places] if entries are shared
    ordinal_first: Int64  # [entries + 1], into entry_ordinal: who shares an entry; empty if each has one
    group_high: Int32  # [groups], of an INTERVAL group where its upper ends begin in `high`, else -1
    high: Int64  # […], longs, or doubles in the order of their values; then their maxima, see above

    # a residual is a conjunction of terms: programs with their wanted truth
    term_first: Int32  # [residuals + 1]
    term_program: Int32  # [terms]
    term_wanted: UInt8  # [terms], 0 or 1; plus 2 where several residuals have the program
    step_first: Int32  # [programs + 1]
    step: Int64  # [steps, 3]: operation, attribute, argument
    item_first: Int32  # [sets and patterns + 1]
    item: Int32  # [items]: codes, ascending within a set, or the symbols of a pattern
    level_first: Int32  # [level strings + 1], into level_bytes
    level_bytes: UInt8  # [bytes]

    # the constants: for each attribute a hash table of strings, and sorted numbers
    string_slot_first: Int64  # [attributes + 1]
    string_slot: UInt64  # [slots], the upper half of the string's hash, and the string; or EMPTY_SLOT
    string_code: Int32  # [strings]
    string_tag: UInt8  # [strings], STRING or BYTES
    string_first: Int64  # [strings + 1], into string_bytes
    string_bytes: UInt8  # [bytes], UTF-8 or a byte string's own
    number_first: Int64  # [attributes + 1]
    number: Float64  # [numbers], ascending for each attribute
    number_code: Int32  # [numbers]
    large_float_first: Int64  # [attributes + 1]
    large_float: Float64  # [large floats], ascending for each attribute
    large_float_code: Int32  # [large floats]


DTYPES: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(hint.__metadata__[0]) for name, hint in get_type_hints(Tables, include_extras=True).items()
}
"""Element type of each array."""

SHAPES: Final = {"tuple_attributes": (-1, 2), "step": (-1, 3)}
"""Shapes of the arrays that have more than one dimension."""


def as_array(name: str, values: object) -> Array:
    """Return `values` as the array `name` of `Tables`: its type and shape, contiguous and read-only.

    Mapped files are read-only, too; one kind of array everywhere means one compiled kernel.
    """
    array = np.ascontiguousarray(np.asarray(values).astype(DTYPES[name], copy=False))
    array = array.reshape(SHAPES.get(name, (-1,)))
    array = array.view()
    array.flags.writeable = False
    return array
