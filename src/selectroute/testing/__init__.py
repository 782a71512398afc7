"""Tests of jobs: folders and a batch without Spark, and a real Kafka broker.

``world`` has `World`: drop messages, publish selectors, route, and read what was published, all in this
process. ``broker`` starts a Kafka broker of one node on this machine. Neither is needed to run a job.
"""
