"""Running query: batches, the registry, and reports.

``fan_out`` is the entry point. ``side_thread`` follows the registry, reports first batches to it, and makes
backfills and replays; ``worker_warm_up`` starts Python workers before a batch needs them, ``upkeep`` looks
after tables, ``reports`` are for a registry and for Prometheus.
"""
