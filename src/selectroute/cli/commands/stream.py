"""``selectroute stream status | audit | deliveries``: results of a fan-out job, from its output folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from selectroute.cli.output import Output, OutputOption, plain, progress, records
from selectroute.selector.explain.sentences import counted, printable

if TYPE_CHECKING:
    from selectroute.kafka.record import Record
    from selectroute.spark.audit.deliveries import Delivery, Fetch
    from selectroute.spark.audit.report import Audit
    from selectroute.spark.audit.status import Status
    from selectroute.spark.sinks.counts import Counts

app = typer.Typer(
    no_args_is_help=True,
    help="Run a streaming fan-out, show its progress and check its results.",
)

JobFolder = Annotated[
    str,
    typer.Argument(metavar="OUTPUT", help="The output folder of a job: a path or a URL.", show_default=False),
]


@app.command()
def status(
    output: JobFolder,
    top: Annotated[
        int,
        typer.Option(
            min=0,
            max=10_000,
            metavar="N",
            help="Also show the N subscriptions with the most deliveries; reads all deliveries.",
            show_default=False,
        ),
    ] = 0,
    as_: OutputOption = Output.table,
) -> None:
    """Show the progress of a job: newest batch and revision, total counts, whether it is running.

    selectroute stream status out --top 10
    """
    from selectroute.spark.audit.status import status as status_of

    found = status_of(output)
    most = None
    if top:
        from selectroute.spark.audit.deliveries import busiest

        with progress("counting deliveries"):
            most = busiest(output, top)
    if as_ is not Output.table:
        counts = [] if most is None else [{"subscription": id, "deliveries": n} for id, n in most.counts]
        print(json.dumps(asdict(found) | ({} if most is None else {"top": counts})))
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
    if most is not None:
        widest = max((len(f"{n:,}") for _, n in most.counts), default=0)
        lines = [f"{n:>{widest},}  {printable(id)}" for id, n in most.counts] or ["none"]
        if most.absent:
            lines.append(f"not counted, because moved away: {counted(most.absent, 'file')}")
        rows["busiest"] = f"\n{'':<12}".join(lines)
    for name, text in rows.items():
        console.print(f"{name:<12}{text}", soft_wrap=True)


@app.command()
def audit(
    output: JobFolder,
    digests: Annotated[bool, typer.Option(help="Read every published file and check its SHA-256.")] = True,
    recount: Annotated[
        bool, typer.Option("--recount", help="Read the inputs that still exist again and count.")
    ] = False,
    file_format: Annotated[
        str, typer.Option("--format", help="Format of the inputs: parquet, json or auto, as in the job.")
    ] = "auto",
    as_: OutputOption = Output.table,
) -> None:
    """Check that the accounts balance: messages in = routed + unrouted + dead letters, in every batch; each
    input of Spark is in exactly one batch; each published file is unchanged.

    Exit code 1 if a check fails, with a line for each failure. Read-only; the job may be running.
    """
    from selectroute.spark.audit.audit import audit as audit_of

    with progress("auditing batches") as advance:
        found = audit_of(output, digests=digests, recount=recount, file_format=file_format, advance=advance)
    if as_ is not Output.table:
        result = {name: value for name, value in asdict(found).items() if name != "findings"}
        print(json.dumps({**result, "findings": [finding._asdict() for finding in found.findings]}))
    else:
        console = plain()
        for name, text in {
            "batches": f"{found.batches:,}, {_side(found)}",
            "inputs": f"{found.inputs:,}" + (f", batches recounted: {found.recounted:,}" if recount else ""),
            "messages": _accounted(found.counts),
            "deliveries": f"{found.counts.deliveries:,}, {found.counts.refused:,} refused",
            "files": f"{found.files:,} as written, {counted(found.bytes, 'byte')}",
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
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most to show, the newest.")] = 20,
    since: Annotated[
        int | None,
        typer.Option(
            metavar="BATCH", min=0, help="Only of this batch of the stream and later.", show_default=False
        ),
    ] = None,
    kafka_servers: Annotated[
        str,
        typer.Option(
            "--kafka-servers",
            metavar="HOST:PORT,…",
            help="Read the messages of a job on topics from Kafka.",
            show_default=False,
        ),
    ] = "",
    kafka_config: Annotated[
        str,
        typer.Option(
            "--kafka-config",
            metavar="FILE",
            help="File with settings of Kafka's clients, name=value a line.",
            show_default=False,
        ),
    ] = "",
    as_: OutputOption = Output.table,
) -> None:
    """Show the deliveries of a subscription, the newest last, with the message if its source still has it.

    selectroute stream deliveries out --subscription heavy --limit 5

    selectroute stream deliveries out --subscription heavy --kafka-servers host:9092

    Records of Kafka are read with --kafka-servers; without it only their positions are shown. Exit code 1 if
    there are no deliveries.
    """
    from selectroute.spark.audit.deliveries import deliveries_of
    from selectroute.spark.job.job import job_record
    from selectroute.spark.sources.kafka.config import PREFIX

    record = job_record(output)
    is_kafka = record["input"].startswith(PREFIX)
    if (kafka_servers or kafka_config) and not is_kafka:
        name = "--kafka-servers" if kafka_servers else "--kafka-config"
        raise typer.BadParameter(f"the job reads files, in {record['input']}", param_hint=name)
    if kafka_config and not kafka_servers:
        raise typer.BadParameter("needs --kafka-servers", param_hint="--kafka-config")
    fetch = _fetch(kafka_servers, kafka_config, record.get("system")) if kafka_servers else None
    found = deliveries_of(output, subscription, limit, since, fetch)
    with records(as_, several=True) as add:
        for one in found:
            if as_ is not Output.table:
                add(json.dumps(asdict(one)))
                continue
            named = "" if one.message_id is None else f", {printable(one.message_id)}"
            place = printable(one.source)
            if is_kafka:
                place = f"{place}, partition {one.partition}, offset {one.offset}"
            elif one.missing is None:
                place = f"{place}:{one.offset + 1}"
            add(f"batch {one.batch}, revision {one.revision}, {place}{named}")
            if one.headers:
                add(f"  {printable('  '.join(map(_header, one.headers)), 2_000)}")
            add(f"  {printable(_shown(one, is_kafka and not kafka_servers), 2_000)}")
    if not found:
        if as_ is Output.table:
            typer.echo(f"no deliveries to {printable(subscription)}", err=True)
        raise typer.Exit(1)


def _shown(one: Delivery, unread: bool) -> str:
    if one.missing is not None:
        return f"no message: {one.missing}{'; --kafka-servers reads it' if unread else ''}"
    return "no value" if one.message is None else one.message


def _header(header: tuple[str, str | None]) -> str:
    name, value = header
    return name if value is None else f"{name}={value}"


def _fetch(servers: str, config: str, system: str | None) -> Fetch:
    """Return a function that reads records of the job's cluster, and refuses other clusters."""

    def fetch(positions: list[tuple[str, int, int]]) -> Mapping[tuple[str, int, int], Record]:
        from selectroute.kafka.client.reading import records_at
        from selectroute.spark import OtherJobError, kafka_cluster

        cluster = kafka_cluster(servers, config or None)
        if not positions or cluster is None:
            return {}
        with progress(f"reading {counted(len(positions), 'record')} of Kafka"), cluster.wire() as wire:
            found = wire.cluster_id()
            if system not in (None, found):
                raise OtherJobError(
                    f"the job reads the Kafka cluster {system}, but {servers} is {found}: its offsets "
                    "are those of other records"
                )
            return records_at(wire, positions)

    return fetch


def _side(found: Status | Audit) -> str:
    return f"{counted(found.backfills, 'backfill')}, {counted(found.replays, 'replay')}"


def _accounted(counts: Counts) -> str:
    return (
        f"{counts.messages:,} = {counts.routed:,} routed + {counts.unrouted:,} unrouted "
        f"+ {counted(counts.dead_lettered, 'dead letter')}"
    )
