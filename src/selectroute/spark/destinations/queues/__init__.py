"""Queues as destinations: those that exist, with how far a batch is put, and a task's writer."""
