"""Deliveries of a task to destinations outside the output folder: queues and Kafka topics.

``codes`` maps subscriptions to destinations, and ``outgoing`` chooses the deliveries of each kind. Their
format is ``queue_messages`` or ``kafka_records``; ``queue_writer`` puts messages, and ``kafka_writer`` sends
records.
"""
