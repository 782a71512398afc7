"""Stage 4: a snapshot and a batch of messages as Arrow columns become matches, without a Python object per
message.

``columns`` turns each Arrow column into a *lane*: a type tag and 64 bits for every row (``batch`` finds the
column by its name, ``fields`` makes the lanes of fields that have several names, ``from_messages`` makes
columns of single messages). ``encode`` looks the values up among the snapshot's constants: one code for each
row and attribute. ``kernel`` then probes the access keys with these codes, and collects for every message the
runs of entries that match; a second pass copies their ordinals into one allocation. ``run_residual`` judges
what keys and sorted ranges do not decide. The three are compiled by numba and know no Python object.

This imports nothing, and ``match.match`` is the one module of it that loads numba: who only opens, builds or
lists waits for no compiler.
"""
