"""Stage 3: clauses become an index, and an index a snapshot.

**Register.** ``Index.add`` files every clause of a selector under an access key: the values of one or two
attributes that it requires to be equal, e.g. (JMSType, color) = ('car', 'blue'). Which attributes, ``plan``
decides from how crowded their values are. A clause without any equality goes to the scan list, with its
reason.

**Match.** A message has one value, and so one key, for every tuple of attributes in use. It looks up each and
judges what is left of the clauses that it finds there. The key only narrows down; the verdict is always
exact.

**Freeze.** ``build`` makes the arrays of a segment (``arrays.tables`` draws them): the entries of one key
together, in groups of one shape, sorted by the bound of their first range so that ``weight > ?`` is a binary
search; what remains of a clause is a small program. Selectors of one shape are parsed once (``shapes``).
``folder`` writes the arrays to files that are mapped into memory as they lie, checked by SHA-256. ``verify``
asserts every invariant.

**Change.** A snapshot never changes. ``change`` makes another one that shares its arrays and has a small
segment beside them, with tombstones for what is gone, and merges segments when there are many, or many
tombstones. ``publisher`` does both to a folder, where each revision is a manifest that names the files of its
segments, and ``folder.retention`` removes what no revision and no reader needs.

::

    subscription ─plan─→ access key          jsonl ─┐
                                                    ├─build─→ snapshot ←─folder─→ files
    subscriptions ─shapes─→ templates ──────────────┘             └─change─→ snapshot
"""
