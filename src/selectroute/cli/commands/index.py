"""``selectroute index build | stats | verify | merge | collect``: snapshots from the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Annotated

import typer
from rich.table import Table

from selectroute.cli.commands.selector import CHECKED, warn_of_selectors
from selectroute.cli.inputs import naming_lines, opened
from selectroute.cli.options import takes_options
from selectroute.cli.output import Output, OutputOption, plain, print_result, progress
from selectroute.job_options import option
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.sentences import counted

app = typer.Typer(
    no_args_is_help=True, help="Build, inspect, verify, merge and clean up snapshots of subscriptions."
)


MAX_REVISION = 2**63 - 1
"""Largest revision: a signed 64-bit integer."""


RevisionOption = Annotated[
    int | None, typer.Option(max=MAX_REVISION, help="The revision to read; the newest by default.")
]
Folder = Annotated[
    str, typer.Argument(help="The snapshot folder, a path or a URL, as written by `index build`.")
]


@dataclass(frozen=True, kw_only=True)
class SelectorLimitOptions:
    """Options that limit selectors.

    Attributes:
        length: The most characters of a selector.
        nesting: The deepest nesting of parentheses, NOTs and signs.
        items: The most strings in an IN list.
    """

    length: int = option(DEFAULT_LIMITS.length, flag="selector-length", range=(1, 1 << 20))
    nesting: int = option(DEFAULT_LIMITS.nesting, flag="selector-nesting", range=(1, 10_000))
    items: int = option(DEFAULT_LIMITS.items, flag="selector-items", range=(1, inf))


@app.command()
@takes_options
def build(
    subscriptions: Annotated[
        str,
        typer.Argument(
            metavar="SUBS.jsonl", help="Subscriptions, one JSON object a line; - reads standard input."
        ),
    ],
    folder: Annotated[
        str,
        typer.Argument(help="The snapshot folder, a path or a URL (s3://bucket/dir); created if missing."),
    ],
    revision: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_REVISION,
            help="Publish as this revision, with the rows valid at it; by default the next one, "
            "with the rows that are still valid.",
        ),
    ] = None,
    output: OutputOption = Output.table,
    *,
    limits: SelectorLimitOptions,
) -> None:
    """Read subscriptions, index them and publish a snapshot.

    A line is {"id": "s1", "topic": "cars/+", "selector": "JMSType = 'car' AND weight > 2500"}; all but "id"
    may be left out. It may also have "dialect", "seltype", "destination" and "status"; and "from" and "to",
    the first revision at which it is valid and the first at which it no longer is.

    Exit code 5 if the first invalid line has an invalid selector.
    """
    from selectroute.index.jsonl import build_from_lines
    from selectroute.index.snapshot_files import publish

    if subscriptions.lower().endswith((".csv", ".tsv", ".xlsx")):
        raise typer.BadParameter(
            'subscriptions are JSON lines: {"id": "s1", "selector": "color = 1"}; to make them of a table: '
            f"pandas.read_csv({subscriptions!r}).to_json('subs.jsonl', orient='records', lines=True)",
            param_hint="SUBS.jsonl",
        )
    started = time.perf_counter()
    with naming_lines(subscriptions), opened(subscriptions) as lines, progress("building") as advance:
        snapshot = build_from_lines(lines, revision, advance, limits=Limits(**asdict(limits)))
    built = time.perf_counter()
    with progress("publishing"):
        published = publish(snapshot, folder)
    done = time.perf_counter()
    warn_of_selectors(snapshot.subscriptions.slice(0, CHECKED).to_pylist(), len(snapshot))
    result = {
        "revision": published,
        "subscriptions": len(snapshot),
        "bytes": snapshot.nbytes,
        "scanned": dict(snapshot.scanned),
        "seconds": {"build": round(built - started, 3), "publish": round(done - built, 3)},
    }
    size, seconds = f"{snapshot.nbytes:,} bytes", f"{done - started:.1f} s"
    text = f"revision {published}: {counted(len(snapshot), 'subscription')}, {size}, {seconds}"
    print_result(output, "\n".join((text, *_scanned(snapshot.scanned))), result)


@app.command()
def stats(folder: Folder, revision: RevisionOption = None, output: OutputOption = Output.table) -> None:
    """Show the structure of a snapshot: access keys, their sizes, scanned clauses and why."""
    from selectroute.index.describe import statistics
    from selectroute.index.snapshot import Snapshot

    facts = statistics(Snapshot.open(folder, revision))
    if output is not Output.table:
        print(json.dumps(asdict(facts)))
        return
    print(
        f"revision {facts.revision}: {counted(facts.subscriptions, 'subscription')}, "
        f"{counted(facts.entries, 'entry', 'entries')} "
        f"({facts.subscriptions_per_entry:,.1f} subscriptions each), "
        f"{counted(facts.programs, 'program')}, {facts.bytes:,} bytes "
        f"({facts.bytes_per_subscription:.1f} each)"
    )
    print(f"reads {', '.join(facts.reads) or 'no column'}")
    table = Table("access key", box=None)
    for name in ("keys", "entries", "under the fullest key"):
        table.add_column(name, justify="right")
    for row in facts.tuples:
        name = ", ".join(row.attributes) or "(scan list)"
        table.add_row(name, f"{row.keys:,}", f"{row.entries:,}", f"{row.largest:,}")
    plain().print(table)
    for sentence in _scanned(facts.scanned):
        print(sentence)


@app.command()
def verify(folder: Folder, revision: RevisionOption = None) -> None:
    """Check a snapshot: every SHA-256, and every invariant of its arrays."""
    from selectroute.index.invariants import verify_snapshot
    from selectroute.index.snapshot import Snapshot

    with progress("verifying"):
        snapshot = Snapshot.open(folder, revision)
        verify_snapshot(snapshot)
    print(f"revision {snapshot.revision}: {counted(len(snapshot), 'subscription')}, sound")


@app.command()
def merge(folder: Folder, output: OutputOption = Output.table) -> None:
    """Rewrite the newest revision as one segment with newly planned access keys, and publish it as the next.

    Subscriptions do not change; after many changes, messages are matched faster. Readers are not interrupted.
    """
    from selectroute.index.publisher import Publisher
    from selectroute.index.snapshot_files import latest_revision

    latest_revision(folder)  # a publisher would create a missing folder
    started = time.perf_counter()
    with progress("merging"), Publisher(folder) as publisher:
        before = publisher.snapshot
        revision = publisher.merge()
        after = publisher.snapshot
    result = {
        "revision": revision,
        "subscriptions": len(after),
        "segments": {"before": len(before.segments), "after": len(after.segments)},
        "bytes": after.nbytes,
        "seconds": round(time.perf_counter() - started, 3),
    }
    merged = f"{counted(len(before.segments), 'segment')} merged into {len(after.segments):,}"
    text = f"revision {revision}: {counted(len(after), 'subscription')}, {merged}, {after.nbytes:,} bytes"
    print_result(output, text, result)


@app.command()
def collect(
    folder: Folder,
    keep: Annotated[int, typer.Option(min=1, help="Count of the newest revisions to keep.")] = 2,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds to keep a revision after a newer one was published.")
    ] = 3600.0,
    output: OutputOption = Output.table,
) -> None:
    """Remove old revisions that no query needs, and files that no revision uses.

    Queries hold leases in the folder leases/ on the revisions that they may still need.
    """
    from selectroute.index.retention import collect

    gone = collect(folder, keep=keep, grace_seconds=grace)
    removed = f"{counted(len(gone.revisions), 'revision')} and {counted(gone.files, 'file')} removed"
    print_result(output, f"{removed}, {gone.bytes:,} bytes", asdict(gone))


def _scanned(scanned: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each reason for which clauses are scanned."""
    for reason, count in scanned.items():
        verb = "is" if count == 1 else "are"
        yield f"{counted(count, 'clause')} {verb} scanned for every message: {reason}"
