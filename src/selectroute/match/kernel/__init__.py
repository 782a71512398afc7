"""Kernel: from codes to the ordinals of matching subscriptions, compiled by numba, without Python objects.

::

    kernel ──→ scan ──→ residual ──→ like
           └───────────────↑

``kernel`` probes the access keys and joins the matches of a row. ``scan`` judges the entries that every
message visits, a block of rows at once. ``residual`` runs the conditions that keys and ranges do not decide,
``like`` compares strings.

From outside only `kernel.collect` and `kernel.emit` are called. In all compiled functions ``segment`` and
``batch`` are the addresses of `SegmentArrays` and `Columns`, which `segment_at` and `columns_at` open.

Where a value is missing, a condition is UNKNOWN, which never holds, whether it is wanted TRUE or FALSE: the
key of NULL is not looked up, a range of it is an empty slice, `scan` clears the rows whose tag is NULL, and a
program leaves NULL. VOID, which makes a whole selector false, counts the same at the end of a program.
"""
