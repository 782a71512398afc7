"""Tables of a job's outcomes: deliveries, unrouted messages and dead letters, in one of two formats.

``tables.OutcomeTables`` is what commits, audits and readers need of them. ``parquet`` are folders of files,
one a batch. ``delta`` are Delta tables: ``delta_table`` is one of them, and ``compaction`` merges its small
files. ``_commits/<n>.json`` decides in either format whether a batch is done; the tables follow.
"""
