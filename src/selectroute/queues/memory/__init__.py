"""Queues in memory: packed messages, found by key, by id and by indexes made on demand."""
