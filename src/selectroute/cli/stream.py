"""``selectroute stream status | audit | deliveries``: what a fan-out job did, read off its output folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selectroute.cli.index import Output, OutputOption
from selectroute.cli.output import Output as Records
from selectroute.cli.output import OutputOption as RecordsOption
from selectroute.cli.output import plain, progress, records
from selectroute.selector.sentences import counted, printable

if TYPE_CHECKING:
    from selectroute.spark.audit_report import Audit
    from selectroute.spark.sinks import Counts
    from selectroute.spark.status import Status

app = typer.Typer(
    no_args_is_help=True,
    help="Look after a streaming fan-out: how far it is, and whether everything adds up.",
)

JobFolder = Annotated[
    Path, typer.Argument(metavar="OUTPUT", help="The output folder of a job.", show_default=False)
]


@app.command()
def status(output: JobFolder, as_: OutputOption = Output.table) -> None:
    """Show how far a job is: its newest batch and revision, what it did in all, whether it runs."""
    from selectroute.spark.status import status as status_of

    found = status_of(output)
    if as_ is Output.json:
        print(json.dumps(asdict(found)))
        return
    console = plain()
    rows = {
        "job": f"{'running' if found.running else 'not running'}, query {found.query or 'not begun'}",
        "input": found.input,
        "batches": f"{found.batches:,} committed, {_side(found)}",
        "newest": "none yet"
        if found.batch is None
        else f"batch {found.batch}, revision {found.revision}, {found.committed}",
        "published": "nothing" if found.published is None else f"revision {found.published}",
        "planned": ", ".join(f"batch {batch}" for batch in found.planned) or "nothing more",
        "messages": _accounted(found.counts),
        "deliveries": f"{found.counts.deliveries:,}, {found.counts.refused:,} refused",
    }
    if found.changed:
        more = len(found.changed) - 3
        named = ", ".join(map(printable, found.changed[:3])) + (f" and {more:,} more" if more > 0 else "")
        files = counted(len(found.changed), "input file")
        rows["changed"] = f"{files} changed after being read, and will not be read again: {named}"
    for name, text in rows.items():
        console.print(f"{name:<12}{text}", soft_wrap=True)


@app.command()
def audit(
    output: JobFolder,
    digests: Annotated[
        bool, typer.Option(help="Read every published file and hold it against its SHA-256.")
    ] = True,
    recount: Annotated[
        bool, typer.Option("--recount", help="Read the inputs that are still there once more and count.")
    ] = False,
    file_format: Annotated[
        str, typer.Option("--format", help="How to read them: parquet, json or auto, as the job was told.")
    ] = "auto",
    as_: OutputOption = Output.table,
) -> None:
    """Check that everything adds up: messages in = routed + unrouted + dead letters, in every batch; each
    input that Spark handed over in exactly one batch; each published file as it was written.

    Exit code 1 if something does not, with a line for each. It only reads, also while the job runs.
    """
    from selectroute.spark.audit import audit as audit_of

    with progress("auditing batches") as advance:
        found = audit_of(output, digests=digests, recount=recount, file_format=file_format, advance=advance)
    if as_ is Output.json:
        result = {name: value for name, value in asdict(found).items() if name != "findings"}
        print(json.dumps({**result, "findings": [finding._asdict() for finding in found.findings]}))
    else:
        console = plain()
        for name, text in {
            "batches": f"{found.batches:,}, {_side(found)}",
            "inputs": f"{found.inputs:,}" + (f", batches recounted: {found.recounted:,}" if recount else ""),
            "messages": _accounted(found.counts),
            "deliveries": f"{found.counts.deliveries:,}, {found.counts.refused:,} refused",
            "files": f"{found.files:,} as written, {found.bytes:,} bytes",
            "moved away": counted(len(found.absent), "folder"),
            "to come": ", ".join(f"batch {batch}" for batch in found.pending) or "nothing is half done",
        }.items():
            console.print(f"{name:<12}{text}", soft_wrap=True)
        for finding in found.findings:
            where = "" if finding.batch is None else f"batch {finding.batch}: "
            console.print(f"WRONG       {where}{finding.sentence}", soft_wrap=True)
    if found.findings:
        raise typer.Exit(1)


@app.command()
def deliveries(
    output: JobFolder,
    subscription: Annotated[
        str, typer.Option("--subscription", metavar="ID", help="The subscription's id.", show_default=False)
    ],
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="So many at most, the newest.")] = 20,
    since: Annotated[
        int | None,
        typer.Option(
            metavar="BATCH", min=0, help="Only of this batch of the stream and later.", show_default=False
        ),
    ] = None,
    as_: RecordsOption = Records.table,
) -> None:
    """Show what a subscription got, the newest last, with the message where its source still has it.

    selectroute stream deliveries out --subscription heavy --limit 5

    Exit code 1 if it got nothing.
    """
    from selectroute.spark.delivered import deliveries_of

    found = deliveries_of(output, subscription, limit, since)
    with records(as_, several=True) as add:
        for one in found:
            if as_ is not Records.table:
                add(json.dumps(asdict(one)))
                continue
            named = "" if one.message_id is None else f", {printable(one.message_id)}"
            place = f"{printable(one.source)}:{one.offset + 1}" if one.missing is None else one.source
            add(f"batch {one.batch}, revision {one.revision}, {place}{named}")
            add(f"  {printable(one.message or f'no message: {one.missing}', 2_000)}")
    if not found:
        if as_ is Records.table:
            typer.echo(f"no deliveries to {printable(subscription)}", err=True)
        raise typer.Exit(1)


def _side(found: Status | Audit) -> str:
    return f"{counted(found.backfills, 'backfill')}, {counted(found.replays, 'replay')}"


def _accounted(counts: Counts) -> str:
    return (
        f"{counts.messages:,} = {counts.routed:,} routed + {counts.unrouted:,} unrouted "
        f"+ {counted(counts.dead_lettered, 'dead letter')}"
    )
