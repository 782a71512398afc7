"""Test support for jobs: batches without Spark, a real Kafka broker, and a real Hadoop cluster.

``world`` has `World`: drop messages, publish selectors, route, and read the output, all in this process.
``broker`` starts a Kafka broker of one node on this machine, and ``hadoop`` HDFS and YARN of one node, as
processes of their own (``server``); their ``jars`` are fetched by name. Jobs need none of this in production.
"""
