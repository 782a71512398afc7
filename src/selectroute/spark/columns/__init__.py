"""Columns between Spark and its Python workers: a frame's as the matcher reads them, and matches as a
column.

``binding`` says which column is which identifier, ``read_columns`` and ``column_types`` what is read of
them; ``matches`` has the forms of the result, ``deliveries`` makes pairs of it; ``snapshot_ref`` is how a
worker opens the snapshot.
"""
