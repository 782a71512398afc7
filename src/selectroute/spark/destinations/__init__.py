"""Deliveries of a task to destinations outside the output folder: queues and Kafka topics.

``codes`` maps subscriptions to destinations, and ``outgoing`` chooses the deliveries of each kind. Their
format is ``queue_messages`` or ``kafka_records``; ``kafka_writer`` sends records, and ``staging`` writes the
files from which the driver puts messages to queues after the commit, see ``senders``.
"""
