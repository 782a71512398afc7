"""Messages that are put to queues and taken: ours, and what holds them beside ours.

``queued`` is workload Q and its holders, a dictionary, a sorted container and SQLite among them. ``engines``
time them; ``memory`` weighs a message in a process of its own.
"""
