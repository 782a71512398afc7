"""Columns of messages: Arrow columns found by their names, as lanes of type tags and 64 bits.

::

    from_messages: single messages ──→ columns of any property type
                                          ↓
    batch: a column by its name ──→ columns: its lane ──→ fields: lanes of fields with several names,
                                                              ↓      and complete messages again
    missing: columns that are read, but not there

Columns of the simplest types stay as they are (`columns.PlainColumn`). Higher rooms import all of these.
Nothing here loads numba.
"""
