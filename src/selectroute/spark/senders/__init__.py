"""Destinations as the driver sees them: the queues and topics that exist, and what is known of a batch.

``queues`` knows the queues and how far batches are put, ``kafka`` the topics and the commit tokens.
``patience`` bounds the time for which a destination that refuses holds the stream back, and ``missing`` warns
of destinations that do not exist. ``staged_messages`` and ``staged_records`` send what an earlier release
staged, and ``late_dead_letters`` writes dead letters for what is refused then.
"""
