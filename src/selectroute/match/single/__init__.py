"""Matching of a single message: the same kernel, without what a batch costs whatever its rows.

``one_message`` writes the values of a message to a small table, ``one_row`` runs the kernel on it, with
memory that is used again. From outside only ``one_message`` is used, by `Snapshot.match` and `warm`.
"""
