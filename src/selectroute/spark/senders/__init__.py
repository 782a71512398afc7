"""Destinations as the driver sees them: topics and queues, and the staged messages that go to queues.

``kafka`` knows the topics and the commit tokens. ``queues`` puts the staged messages of a committed batch;
``staged_records`` sends what an earlier release staged for Kafka. ``patience`` bounds the time for which a
destination that refuses holds the stream back, ``missing`` warns of destinations that do not exist, and
``late_dead_letters`` writes dead letters for deliveries refused after the commit.
"""
