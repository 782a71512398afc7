"""Subscriptions that outlive the process: a durable change log, the tables that are its view, and snapshots
published from it.
"""
