"""Benchmarks: how fast, against what, and checked.

`definitions/` holds the benchmarks as data, each with its analysis and its expected counts; a wrong count
fails the run. `workloads` makes rules and messages, the same in every language; `oracle` says what must
match, without any engine. `engines` and `spark_engines` are what is measured, side by side and interleaved;
`measure` takes times and counts, `report` writes the tables of README.md from the raw record. Run ``python -m
bench``.
"""
