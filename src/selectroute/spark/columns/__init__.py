"""Columns between Spark and its Python workers: input columns of a frame, and matches as a column.

``binding`` maps columns to identifiers, ``column_types`` selects and checks those that selectors read;
``matches`` has the forms of the result column and expands them to pairs; ``snapshot_ref`` opens the snapshot
in a worker; ``arrow_casts`` and ``casts`` convert values.
"""
