"""Kernel: from codes to the ordinals of matching subscriptions, compiled by numba, without Python objects.

::

    kernel ──→ scan_list ──→ scan_terms ──→ run_residual ──→ like ──→ utf8
           └─────────────────────────────────↑

``kernel`` probes the access keys and joins the matches of a row; ``plain_groups`` does the latter where
nothing is left to judge. ``scan_list`` judges the entries that every
message visits, by the terms of ``scan_terms``, a block of rows at once. ``run_residual`` runs the conditions
that keys and ranges do not decide, ``like`` compares strings, ``utf8`` reads their characters.

From outside only `kernel.collect` and `kernel.emit` are called.
"""
