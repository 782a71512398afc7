"""Deliveries that subscriptions missed while they were paused: ``owed`` reads off the log which,
``backfill`` makes them, in batches beside the stream.
"""
