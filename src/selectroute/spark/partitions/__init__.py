"""Registries too large for one machine: a snapshot in partitions (``snapshot``, ``publish``), and routing by
it (``keys``, ``route``).
"""
