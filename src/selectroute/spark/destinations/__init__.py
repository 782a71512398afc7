"""Destinations of deliveries outside the output folder: queues and Kafka topics.

``destination`` has what both have in common. A room each has what the driver knows of what exists and of a
batch (``queues.queues``, ``kafka.topics``), and the ``writer`` of a task.
"""
