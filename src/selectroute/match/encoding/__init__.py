"""Encoding of lanes: one code for each row and attribute, from the snapshot's constants.

``lanes`` is the input of the kernel: it unpacks the columns of a batch once, and has them encoded for each
segment. ``encode`` looks values up among the constants, in compiled code. ``verdicts`` judges LIKE once for
each distinct string.

Spark's partitions read ``lanes``, and `warm` reads ``verdicts``; other rooms see only codes.
"""
