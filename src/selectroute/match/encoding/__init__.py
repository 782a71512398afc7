"""Encoding of lanes: one code for each row and attribute, from the snapshot's constants.

``lanes`` is the input of the kernel: it unpacks the columns of a batch once, and has them encoded for each
segment, or leaves that to the kernel, which calls ``blocks`` for a block of rows at a time. ``encode`` looks
values up among the constants, in compiled code, the shortest in the tables of ``short_strings``.

Spark's partitions and `warm` read ``lanes``; other rooms see only codes.
"""
