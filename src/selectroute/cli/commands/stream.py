"""``selectroute stream status | audit``: state of a fan-out job, from its output folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selectroute.cli.options import takes_options
from selectroute.cli.output import Output, OutputOption, print_result, progress
from selectroute.job_options import option
from selectroute.selector.explain.sentences import counted, printable

if TYPE_CHECKING:
    from selectroute.spark import KafkaCluster
    from selectroute.spark.audit.report import Audit
    from selectroute.spark.audit.status import Status
    from selectroute.spark.sinks.counts import Counts

app = typer.Typer(
    no_args_is_help=True, help="Run a streaming fan-out, show its progress and check its results."
)

JobFolder = Annotated[
    str, typer.Argument(metavar="OUTPUT", help="The output folder of a job: a path or a URL.")
]


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """Options of commands that look into the topics of a job.

    Attributes:
        kafka_servers: The Kafka of the job's topics, to look into them.
        kafka_config: File with settings of Kafka's clients, name=value a line.
    """

    kafka_servers: str = option("", metavar="HOST:PORT,…")
    kafka_config: str = option("", metavar="FILE")

    def cluster(self) -> KafkaCluster | None:
        """Return the cluster, if it is given. Raises BadParameter for a file without one."""
        from selectroute.spark import kafka_cluster

        if self.kafka_config and not self.kafka_servers:
            raise typer.BadParameter("needs --kafka-servers", param_hint="--kafka-config")
        return kafka_cluster(self.kafka_servers, self.kafka_config or None)


def has_partitions(record: Mapping[str, Any]) -> bool:
    """Return whether the messages of a job, by its record, are in partitions: those of Kafka and of a
    DataFrame, not of files.
    """
    from selectroute.spark.sources.kafka.config import PREFIX
    from selectroute.spark.sources.offset_log import FRAME

    return str(record["input"]).startswith((PREFIX, FRAME))


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
        from selectroute.spark.audit.busiest import busiest

        with progress("counting deliveries"):
            most = busiest(output, top)
    data = asdict(found)
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
    if found.waiting:
        when = "after the running batch" if found.running else "at the next start"
        rows["waiting"] = f"{counted(len(found.waiting), 'requested replay')}, to be made {when}"
    if found.changed:
        more = len(found.changed) - 3
        named = ", ".join(map(printable, found.changed[:3])) + (f" and {more:,} more" if more > 0 else "")
        files = counted(len(found.changed), "input file")
        rows["changed"] = f"{files} changed after being read, and will not be read again: {named}"
    if most is not None:
        data["top"] = [{"subscription": id, "deliveries": n} for id, n in most.counts]
        widest = max((len(f"{n:,}") for _, n in most.counts), default=0)
        lines = [f"{n:>{widest},}  {printable(id)}" for id, n in most.counts] or ["none"]
        if most.absent:
            lines.append(f"not counted, because moved away: {counted(most.absent, 'file')}")
        rows["busiest"] = f"\n{'':<12}".join(lines)
    print_result(as_, _lines(rows), data)


@app.command()
@takes_options
def audit(
    output: JobFolder,
    *,
    digests: Annotated[bool, typer.Option(help="Read every published file and check its SHA-256.")] = True,
    recount: Annotated[
        bool, typer.Option("--recount", help="Read the inputs that still exist again and count.")
    ] = False,
    file_format: Annotated[
        str, typer.Option("--format", help="Format of the inputs: parquet, json or auto, as in the job.")
    ] = "auto",
    kafka: KafkaOptions,
    as_: OutputOption = Output.table,
) -> None:
    """Check that the accounts balance: messages in = routed + unrouted + dead letters, in every batch; each
    input of Spark is in exactly one batch; each published file is unchanged. With --kafka-servers also that
    the topics are those that were read and written, not created again or short of records.

    Exit code 1 if a check fails, with a line for each failure. Read-only; the job may be running.
    """
    from selectroute.spark.audit.audit import audit as audit_of

    cluster = kafka.cluster()
    with progress("auditing batches") as advance:
        found = audit_of(
            output, digests=digests, recount=recount, file_format=file_format, kafka=cluster, advance=advance
        )
    inputs = f"{found.inputs:,}"
    if recount:
        inputs += f", batches recounted: {found.recounted:,}"
    if found.skipped:
        inputs += f", skipped: {found.skipped:,} that were gone at first sight"
    rows = {
        "batches": f"{found.batches:,}, {_side(found)}",
        "inputs": inputs,
        "messages": _accounted(found.counts),
        "deliveries": f"{found.counts.deliveries:,}, {found.counts.refused:,} refused",
        "files": f"{found.files:,} as written, {counted(found.bytes, 'byte')}",
        "moved away": counted(len(found.absent), "folder"),
        "to come": ", ".join(f"batch {batch}" for batch in found.pending) or "nothing is half done",
    }
    lines = [_lines(rows)]
    for finding in found.findings:
        where = "" if finding.batch is None else f"batch {finding.batch}: "
        lines.append(_lines({"WRONG": f"{where}{finding.sentence}"}))
    data = {**asdict(found), "findings": [finding._asdict() for finding in found.findings]}
    print_result(as_, "\n".join(lines), data)
    if found.findings:
        raise typer.Exit(1)


def _lines(rows: Mapping[str, str]) -> str:
    """Return rows as lines, their texts in a column."""
    return "\n".join(f"{name:<12}{text}" for name, text in rows.items())


def _side(found: Status | Audit) -> str:
    return f"{counted(found.backfills, 'backfill')}, {counted(found.replays, 'replay')}"


def _accounted(counts: Counts) -> str:
    return (
        f"{counts.messages:,} = {counts.routed:,} routed + {counts.unrouted:,} unrouted "
        f"+ {counted(counts.dead_lettered, 'dead letter')}"
    )
