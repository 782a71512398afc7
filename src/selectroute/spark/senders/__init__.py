"""Senders: after the commit, the driver delivers the staged messages to queues and Kafka.

``sender`` has the protocol, ``queues`` and ``kafka`` are the two senders. ``patience`` bounds the time for
which a full destination holds the stream back, ``missing`` warns of destinations that do not exist, and
``late_dead_letters`` writes dead letters for deliveries refused after the commit.
"""
