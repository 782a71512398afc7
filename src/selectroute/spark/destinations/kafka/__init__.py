"""Kafka topics as destinations: existing topics with the commit tokens of a batch, and a task's writer."""
