"""Compiling of subscriptions to the arrays of a segment.

::

    build ──→ shapes ──→ keys, cost_plan ──→ filing ──→ entries ──→ layout ──→ hot_keys, prefixes
                                                └──→ residuals, dictionary

``shapes`` finds selectors that differ only in literals. ``keys`` chooses the attributes under which a clause
is filed in the live index, ``cost_plan`` in a snapshot. ``filing`` makes ``entries`` of clauses, ``layout``
sorts these, ``hot_keys`` divides the keys with most of them, ``prefixes`` files LIKE. ``residuals`` compiles
what keys and ranges do not decide, ``dictionary`` numbers constants.
"""
