"""Queues in a database, SQLite or PostgreSQL: tables, statements, units and their owners, polling."""
