"""Matching in Spark over files: what a user would write, no-op UDFs, and ours.

``engines`` are those of one session, side by side. ``cores`` runs them under one master after another, each
in a fresh process, and reads the processor time of everything that it started. Imported when a benchmark
needs it, because it imports pyspark.
"""
