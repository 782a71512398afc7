"""Calls on queues: IBM MQ's messaging REST API."""
