"""Stage 4: matching a batch of messages, as Arrow columns, with a snapshot; no Python object per message.

``columns`` turns each Arrow column into a *lane*: a type tag and 64 bits for every row (``batch`` finds the
column by its name, ``fields`` makes the lanes of fields that have several names, ``from_messages`` makes
columns of single messages). ``encode`` looks the values up among the snapshot's constants: one code for each
row and attribute. ``kernel`` then probes the access keys with these codes, and collects for every message the
runs of entries that match; a second pass copies their ordinals into one allocation. ``run_residual`` judges
the conditions that keys and sorted ranges do not decide; ``range_search`` finds the entries of a sorted group
and ``range_kernel`` searches its bounds. What runs once per row is compiled by numba and uses no Python
objects.

This package imports nothing, and ``match.match`` is its only module that loads numba: programs that only
open, build or list snapshots do not wait for the compiler.
"""
