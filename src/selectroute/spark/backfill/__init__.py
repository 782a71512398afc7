"""Deliveries that subscriptions missed while paused: ``owed`` computes them from the change log, ``backfill``
makes them, in side batches.
"""
