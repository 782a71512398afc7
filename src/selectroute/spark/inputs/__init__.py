"""Inputs of a batch: planned by Spark's stream, cut into tasks, recorded in the commit, reread later.

``source`` has the protocols, ``files`` and ``kafka`` the two sources, ``open_source`` opens that of a job.
"""
