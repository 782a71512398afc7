"""Sources of messages: ``files`` of Parquet or JSON lines, records of ``kafka``, rows of a data ``frame``.

``source`` has their protocols, ``open_source`` opens the source of a job, ``planner`` plans batches for
Spark, ``checkpoint`` reads Spark's own logs. A room has the ``source`` with which the driver
plans batches, and the ``reader`` of workers.
"""
