"""Jobs from topic to topic of Kafka, and jobs whose outcomes become tables.

``streamed`` is what they share at one size: a broker, records on its topics, subscriptions. ``engines`` are
the fan-out and the same job with a no-op in its place; ``relay`` is what a user would write in Java instead,
and `bench.peers.topics` has the jobs of frameworks; ``connector`` finds the jars of Spark's own Kafka source.
``table_engines`` write Parquet files and Delta tables.

``latency`` is measured at even rates, which ``paced`` writes in a process of its own; ``commits`` reads from
the broker's files which deliveries were committed, and when. ``memory`` watches one job for a long time.
``report`` makes the tables of all this for README.md.
"""
