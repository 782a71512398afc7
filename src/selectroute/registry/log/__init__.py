"""Change log and tables of a registry's database.

::

    revision ──→ tables (log, and the view made of it) ──→ rows ──→ change_log, cursors (read)
                                                                     verify (compare with the digests)

``header_rows`` has the counter and the settings, ``idempotency`` the responses to earlier requests. Do not
change the input of a digest: existing databases were sealed with it.
"""
