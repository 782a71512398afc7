"""Compiling of subscriptions to the arrays of a segment.

::

    build ──→ shapes, keys ──→ filing ──→ layout, residuals, dictionary

``shapes`` finds selectors that differ only in literals, ``keys`` chooses the attributes under which a clause
is filed, ``filing`` makes entries of clauses, ``layout`` sorts these, ``hot_keys`` divides the keys with
most of them, ``residuals`` compiles what keys and ranges do not decide, ``dictionary`` numbers constants.
"""
