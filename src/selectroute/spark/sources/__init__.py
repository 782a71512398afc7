"""Readers of messages: of files, Parquet or JSON lines (``files``), and of Kafka records (``kafka``).

Workers call the readers; the driver uses the rest, which reads Spark's checkpoint and queries the cluster.
"""
