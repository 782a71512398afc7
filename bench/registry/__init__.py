"""Registering, reading and starting: a registry in this process, behind a service, and beside SQLite alone.

``engines`` are what is timed. ``registered`` is a registry of one size that they share. ``clients`` register
over HTTP from a process of their own, and ``callers`` ask a service, from another, for what costs it most.
"""
