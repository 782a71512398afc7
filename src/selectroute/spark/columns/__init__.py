"""Columns between Spark and its Python workers: input columns of a frame, and matches as a column.

``binding`` maps columns to identifiers, ``read_columns`` and ``column_types`` select and check those that
selectors read; ``matches`` has the forms of the result column, ``deliveries`` expands them to pairs;
``snapshot_ref`` opens the snapshot in a worker.
"""
