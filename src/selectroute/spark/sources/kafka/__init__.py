"""Messages from Kafka topics.

``config`` is the input as a job names it, ``planner`` and ``offsets`` choose ranges of offsets, ``source``
distributes them over tasks. In a worker ``reader`` fetches them, ``convert`` and ``columns`` make messages of
them.
"""
