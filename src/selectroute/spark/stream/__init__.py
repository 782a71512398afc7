"""Running query: batches, the registry, and reports.

``fan_out`` is the entry point. ``side_thread`` follows the registry, reports first batches to it, and makes
backfills and replays; ``ready_workers`` starts Python workers before a batch needs them, ``table_upkeep``
looks after tables, ``metrics`` are for Prometheus.
"""
