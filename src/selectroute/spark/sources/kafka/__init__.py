"""Messages from Kafka topics.

``config`` is the input as a job names it, ``planner`` and ``offsets`` choose ranges of offsets, ``reader``
and ``columns`` read them in a worker; ``source`` puts these together.
"""
