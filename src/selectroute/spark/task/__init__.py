"""Work of one Spark task.

``task`` reads a part of a batch and matches it, ``writer`` writes the three tables, ``replay_filter`` selects
the messages and deliveries of a replay, ``connections`` are kept from task to task.
"""
