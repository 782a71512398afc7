"""Registries too large for one machine: a snapshot in partitions (``snapshot``, ``publish``, ``keys``), and
routing with it: in each worker with all partitions (``mapped``), or by an exchange (``route``, ``steps``).
``exchange`` chooses, ``merge`` joins what the partitions find.
"""
