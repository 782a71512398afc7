"""Stage 4: matching a batch of messages, as Arrow columns, with a snapshot; no Python object per message.

::

    columns ──lanes──→ encoding ──codes──→ kernel, with ranges ──runs of entries──→ ordinals
    match: a batch; single: one message, on a batch of one_row; extended: EXTENDED subscriptions;
    multi_segment: several segments

``columns`` turns each Arrow column into a *lane*: a type tag and 64 bits for every row. ``encoding`` looks
the values up among the snapshot's constants: one code for each row and attribute. ``kernel`` then probes the
access keys with these codes, and collects for every message the runs of entries that match; a second pass
copies their ordinals into one allocation. What runs once per row is compiled by numba (``compiled``) and
uses no Python objects: it reads by addresses (``memory``, ``array_structs``).

This package imports nothing, and ``match.match`` and ``single`` are the only ways by which a snapshot loads
numba: programs that only open, build or list snapshots do not wait for the compiler.
"""
