"""``python -m bench``: the quick tour. ``--full`` measures the record, ``--report`` makes the tables from
it again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import report
from bench.definition import benchmarks, short, sizes
from bench.measure import Sample, WrongCountError, machine, read_csv, source_digest, write_csv
from bench.tour import Choice, Tour, say

RECORD = Path(__file__).with_name("record")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit code: 1 if a count was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all sizes; writes bench/record and the README")
    parser.add_argument(
        "--report", action="store_true", help="make the README's tables from bench/record again"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=sorted({name for one in benchmarks() for name in (one.name, one.group)}),
        metavar="NAME",
        help="only this benchmark, or those of this group",
    )
    parser.add_argument(
        "--rules",
        action="append",
        default=[],
        type=int,
        metavar="N",
        help="only this size",
    )
    parser.add_argument(
        "--into-record",
        action="store_true",
        help="with --full --only: put the figures into bench/record in place of its own of the same",
    )
    parser.add_argument("--cores", type=int, default=2, help="Spark's cores (default 2)")
    given = parser.parse_args(arguments)
    if given.report:
        report.update_pages(*_recorded())
        return 0
    if given.into_record and not (given.full and given.only):
        parser.error("--into-record is for --full --only")
    described = machine(given.cores)
    whole = given.full and not given.only and not given.rules
    choice = Choice(not given.full, given.cores, given.only, given.rules)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="selectroute-bench-") as scratch:
        tour = Tour(choice, sizes(), Path(scratch))

        def keep(done: int, of: int) -> None:
            """A run that is ended early leaves what it has measured."""
            if source_digest() == described["source"]:
                ended = [f"the run was ended after {done} of {of} sizes"] if done < of else []
                failed = [f"{', '.join(tour.failed)} failed"] if tour.failed else []
                remark = "; ".join([*ended, *failed])
                _record(tour.samples, {**described, "skipped": tour.skipped, "remark": remark})

        try:
            tour.run(keep if whole else lambda done, of: None)
        except WrongCountError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    say(f"{time.perf_counter() - started:.0f} s in all")
    described["skipped"] = tour.skipped
    print(report.render(tour.samples, described))
    if source_digest() != described["source"]:
        print("bench: sources changed while they were measured: these figures are no record", file=sys.stderr)
        return 1
    if given.into_record and tour.samples:  # none if everything failed
        _put_into_record(tour.samples, described)
    if whole or given.into_record:
        report.update_pages(*_recorded())
    if tour.failed:
        print(f"bench: {', '.join(tour.failed)} failed", file=sys.stderr)
    return 1 if tour.failed else 0


def _record(samples: Sequence[Sample], described: dict[str, Any]) -> None:
    """Write a whole run's record. It keeps what is no part of such a run: the `Benchmark.long`."""
    before, of_record = _recorded() if RECORD.exists() else ([], {})
    long = {one.name for one in benchmarks() if one.long}
    own = []
    for run in of_record.get("later", []):
        if names := [name for name in run["benchmarks"] if name in long]:
            own.append({**run, "benchmarks": names})
    kept = [one for one in before if one.benchmark in long]
    _write([*samples, *kept], {**described, "later": own})


def _put_into_record(samples: Sequence[Sample], described: dict[str, Any]) -> None:
    """Put a later run's samples behind the record's, without those that it measured anew. A run of which
    nothing is left is not named any more; one of some sizes only is named with them.
    """
    before, of_record = _recorded()
    anew = {(one.benchmark, one.workload, one.rules) for one in samples}
    kept = [one for one in before if (one.benchmark, one.workload, one.rules) not in anew]
    names = sorted({one.benchmark for one in samples})
    replaced = set(names) - {one.benchmark for one in kept}
    run = {"benchmarks": names}
    if len(replaced) < len(names):
        run["sizes"] = sorted({f"{workload} {short(rules)}" for _, workload, rules in anew})
    later = []
    for earlier in of_record.get("later", []):
        left = [name for name in earlier["benchmarks"] if name not in replaced]
        if left and (left, earlier.get("sizes")) != (names, run.get("sizes")):
            later.append({**earlier, "benchmarks": left})
    found = {name: described[name] for name in ("date", "cpu", "load_average_at_start", "source")}
    parts = {name: described[name] for name in described.keys() - of_record.keys()}
    _write([*kept, *samples], {**of_record, **parts, "later": [*later, {**run, **found}]})


def _write(samples: Sequence[Sample], described: dict[str, Any]) -> None:
    RECORD.mkdir(exist_ok=True)
    write_csv(RECORD / "samples.csv", samples)
    (RECORD / "machine.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def _recorded() -> tuple[list[Sample], dict[str, Any]]:
    return read_csv(RECORD / "samples.csv"), report.read_machine(RECORD / "machine.json")


if __name__ == "__main__":
    sys.exit(main())
