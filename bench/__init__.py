"""Benchmarks: how fast, against what, and checked. Run ``python -m bench``.

`definitions/` holds the benchmarks as data, each with its analysis and its expected counts; a wrong count
fails the run. ``definition`` reads them. ``workloads/`` makes rules and messages, and says what must match.

What is measured, side by side and interleaved, is in a room for each subject: ``matching/`` in one process,
``registry/``, ``queues/``, ``spark/`` over files, ``kafka/`` from topic to topic. ``engine`` is what all
engines are, ``opened`` what a benchmark opens and closes. ``jvm`` runs the Java of `peers/`, whose
``topics`` are jobs from topic to topic.

``measure`` takes times and counts, ``tour`` goes over benchmarks and sizes, ``report`` and ``tables`` write
the tables of README.md from the raw `record/`. Imports point down only, in this order::

    __main__  >  report, tour  >  peers  >  kafka  >  queues, spark  >  matching, registry  >  tables
    >  measure  >  jvm  >  definition, engine, opened  >  workloads
"""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
"""The checkout, in which processes of benchmarks are started."""
