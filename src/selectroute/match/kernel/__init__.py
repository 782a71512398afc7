"""Kernel: from codes to the ordinals of matching subscriptions, compiled by numba, without Python objects.

::

    kernel ──→ scan ──→ residual ──→ like
           └───────────────↑

``kernel`` probes the access keys and joins the matches of a row. ``scan`` judges the entries that every
message visits, a block of rows at once. ``residual`` runs the conditions that keys and ranges do not decide,
``like`` compares strings.

From outside only `kernel.collect` and `kernel.emit` are called.
"""
