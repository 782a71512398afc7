"""Inputs of a batch: planned by Spark's stream, cut in tasks, recorded in the commit, read again later.

``source`` has the protocols, ``files`` and ``kafka`` are the two sources, ``open_source`` finds a job's.
"""
