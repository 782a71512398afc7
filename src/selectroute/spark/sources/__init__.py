"""Sources of messages: ``files`` of Parquet or JSON lines, records of ``kafka``, rows of a data ``frame``.

``source`` has their protocols, ``open_source`` opens that of a job, ``planner`` is what Spark asks for the
next batch, ``checkpoint`` reads Spark's own logs. A room has the ``source`` that the driver plans batches
with, and the ``reader`` of workers.
"""
