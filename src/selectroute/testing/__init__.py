"""Test support for jobs: batches without Spark, and a real Kafka broker.

``world`` has `World`: drop messages, publish selectors, route, and read the output, all in this process.
``broker`` starts a Kafka broker of one node on this machine, as a process of its own (``server``); its
``jars`` are fetched by name. Jobs need none of this in production.
"""
