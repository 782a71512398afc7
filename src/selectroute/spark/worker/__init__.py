"""Work of one Spark task: ``task`` reads a part of a batch and matches it, ``sink_writer`` writes the three
tables, ``replay_filter`` lets through what a replay is for.
"""
