"""What both stores share: one engine for SQLite and PostgreSQL, transactions that are whole or nothing, and
digests that find damage.
"""
