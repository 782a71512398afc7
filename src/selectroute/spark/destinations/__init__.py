"""Destinations beside the output folder, as far as a worker is concerned: queues and topics of Kafka.

``codes`` says which subscription is delivered where, ``staging`` writes what is to be sent, in the format of
its kind: ``queue_messages`` or ``kafka_records``. The driver sends it after the commit, see ``senders``.
"""
