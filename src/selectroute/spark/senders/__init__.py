"""Senders: after the commit the driver hands on what the workers have staged for queues and for Kafka.

``sender`` has the protocol, ``queues`` and ``kafka`` are the two. ``patience`` bounds how long a full
destination holds the stream back, ``missing`` warns of those that are not there, and ``late_dead_letters``
has what could not be sent.
"""
