"""Change log and tables of a registry's database.

::

    group_commit ──→ transaction ──→ tables (log, and the view made of it) ──→ rows ──→ change_log
                      revision

A ``revision`` is checked and recorded in its ``transaction``, which writes all of its revisions at the end.
``change_log`` reads the log, and verifies it: everything is compared with the digests. Do not change the
input of a digest: existing databases were sealed with it.
"""
