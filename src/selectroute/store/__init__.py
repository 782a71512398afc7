"""Database access: SQLite or PostgreSQL by SQLAlchemy, transactions, digests of rows.

``engine`` opens a database by its URL and begins transactions: concurrent readers, each with one consistent
state, and one writer at a time. ``errors`` classifies database errors:
read-only or full, busy, unreachable, damaged. SQLite has no checksums on its pages, so each
important row carries the SHA-256 of its fields.
"""
