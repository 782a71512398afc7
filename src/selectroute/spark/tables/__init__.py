"""Tables of a job's outcomes: deliveries, unrouted messages and dead letters, in one of two formats.

``schemas`` has their columns and counts, ``tables.OutcomeTables`` is what commits, audits and readers need
of them. ``parquet`` are folders of files, one a batch (``parquet_file`` writes one). ``delta`` are Delta
tables, each a ``delta_table``. ``_commits/<n>.json`` decides in either format whether a batch is done; the
tables follow.
"""
