"""Selectors that are matched in one process: ours, and what runs beside them.

``makers`` has the engines of each benchmark by their names. ``engines`` are ours: building, the kernel, the
index on single messages, the reference evaluator; ``churn`` changes them while they match. Beside them are
``brute`` force in NumPy, the ``ceiling``, which is `ceiling.c`, ``expanded``, which keeps the subscribers
in a table, and the engines on the JVM of `bench.jvm`.

``memory`` weighs rules in a process of its own. ``parsers`` are timed on texts alone, without a message;
`selector.lark` is the grammar for the one that is not ours.
"""
