"""Store on disk: SQLite or PostgreSQL by SQLAlchemy, transactions, digests of rows.

``engine`` opens a database by its URL and hands out transactions: many that read, each of one consistent
state, and one at a time that writes. ``errors`` is what a database can say, in this package's words: it is
read-only or full, busy, out of reach, or damaged. ``digests`` seals rows: SQLite has no checksums on its
pages, so each row that matters carries the SHA-256 of what it says. ``head`` notices a database that lost
the end of what it acknowledged, which SQLite takes for what a crash cut off.
"""
