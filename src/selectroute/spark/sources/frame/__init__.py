"""Rows of a streaming DataFrame, which a task can read only once."""
