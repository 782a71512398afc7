"""Registries too large for one machine: a snapshot in partitions (``snapshot``, ``publish``, ``keys``), and
routing with it (``route``, ``steps``).
"""
