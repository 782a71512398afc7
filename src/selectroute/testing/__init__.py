"""Real Kafka broker for tests and benchmarks.

``broker`` starts a broker of one node on this machine, as a process of its own; its ``jars`` are
fetched by name. Jobs need none of this in production.
"""
