"""Destinations as the driver sees them: the queues and topics that exist, and what is known of a batch.

``queues`` knows the queues and how far batches are put, ``kafka`` the topics and the commit tokens.
``patience`` retries what does not answer, and bounds the time for which a destination that refuses holds the
stream back. ``missing`` warns of destinations that do not exist.
"""
