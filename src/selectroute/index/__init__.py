"""Stage 3: from clauses to an index, and from an index to a snapshot.

**Register.** ``Index.add`` files every clause of a selector under an access key: the values of one or two
attributes that the clause requires to be equal, e.g. (JMSType, color) = ('car', 'blue'). ``compile.keys``
chooses the attributes by the number of clauses per value. A clause without any equality goes to the scan
list, with its reason.

**Match.** A message has one value, and so one key, for every tuple of attributes in use. All of these keys
are looked up, and the rest of each clause found there is judged. Keys only narrow down; the verdict is
exact.

**Freeze.** ``compile`` makes the arrays of a segment (``arrays.tables`` draws them): the entries of one key
together, in groups of one shape, sorted by the bound of their first range so that ``weight > ?`` is a binary
search; the rest of a clause is a small program. Selectors of one shape are parsed once. ``snapshot_files``
writes the arrays to files that are mapped into memory unchanged, checked by SHA-256. ``invariants`` has what
holds of them.

**Change.** A snapshot is immutable. ``changes`` makes another one that shares its arrays and adds a small
segment, with tombstones for removed subscriptions, and merges segments when there are many, or many
tombstones. ``publisher`` does both in a folder, where each revision is a manifest that names the files of
its segments, and ``retention`` removes files that no revision and no reader needs.

**Read.** ``specification`` is what a subscription in JSON may say, whoever sends it; ``jsonl`` reads many of
them, a line each. ``match_report`` says of one message who gets it, who nearly does (``near_misses``), and
why.

::

    subscription ─keys─→ access key          jsonl ─┐
                                                    ├─compile─→ snapshot ←──────→ files
    subscriptions ─shapes─→ templates ──────────────┘               └─changes─→ snapshot
"""
