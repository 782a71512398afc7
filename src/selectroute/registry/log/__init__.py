"""Change log and tables of a registry's database.

::

    revision ──→ tables (log, and the view made of it) ──→ rows ──→ change_log, cursors (read)
                                                                     verify (compare with the digests)

``header_rows`` has the counter and the settings, ``idempotency`` the requests that were answered already.
Do not change what a digest is computed of: databases that exist were sealed with it.
"""
