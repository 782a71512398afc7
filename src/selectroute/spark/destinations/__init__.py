"""Staging in workers of messages for destinations outside the output folder: queues and Kafka topics.

``codes`` maps subscriptions to destinations, ``staging`` writes the messages to send, in the format of their
kind: ``queue_messages`` or ``kafka_records``. The driver sends them after the commit, see ``senders``.
"""
