"""Running query: batches, the registry, and reports.

``fan_out`` is the entry point. ``side_thread`` follows the registry, reports first batches to it, and makes
backfills and replays; ``upkeep`` maintains tables and keeps Python workers warm; ``reports`` are for a
registry, ``metrics`` for Prometheus.
"""
