"""Queues as destinations: existing queues with the progress of a batch, and a task's writer."""
