"""Kafka topics as destinations: those that exist, with the commit tokens of a batch, and a task's writer."""
