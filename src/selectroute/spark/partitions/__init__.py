"""Registries too large for one machine: a snapshot in partitions (``snapshot``, ``publish``), and routing
with it (``keys``, ``steps``, ``route``).
"""
