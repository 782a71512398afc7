"""Readers of messages: of files, Parquet or JSON lines (``files``), and of records of Kafka (``kafka``).

Workers call the readers; the rest is what the driver asks of Spark's checkpoint and of the cluster.
"""
