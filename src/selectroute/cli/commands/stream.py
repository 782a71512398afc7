"""``selectroute stream status | audit | deliveries | unrouted | explain``: state of a job and what became of
messages, from its output folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from selectroute.cli.commands.stream_run import RunOptions
from selectroute.cli.commands.subscription import as_json_text, as_text
from selectroute.cli.exit_codes import FAILURE, NOT_FOUND
from selectroute.cli.options import flag_of, takes_options
from selectroute.cli.output import Output, OutputOption, json_with, print_result, progress, records
from selectroute.job_options import option, options_of
from selectroute.selector.sentences import counted, printable

if TYPE_CHECKING:
    from selectroute.kafka.ranges import Range
    from selectroute.kafka.record import Record
    from selectroute.spark import KafkaCluster
    from selectroute.spark.audit.audit import Audit
    from selectroute.spark.audit.outcomes import Fetch, MessageOutcome, Place
    from selectroute.spark.audit.why import Why
    from selectroute.spark.job_administration import JobStatus
    from selectroute.spark.tables.schemas import Counts

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
    from selectroute.spark.sources.checkpoint import FRAME
    from selectroute.spark.sources.kafka.config import PREFIX

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
    from selectroute.spark.job_administration import status as status_of

    found = status_of(output)
    most = None
    if top:
        from selectroute.spark.audit.outcomes import busiest

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
    print_result(as_, "\n".join(lines), asdict(found))
    if found.findings:
        raise typer.Exit(1)


def _lines(rows: Mapping[str, str]) -> str:
    """Return rows as lines, their texts in a column."""
    return "\n".join(f"{name:<12}{text}" for name, text in rows.items())


def _side(found: JobStatus | Audit) -> str:
    return f"{counted(found.backfills, 'backfill')}, {counted(found.replays, 'replay')}"


def _accounted(counts: Counts) -> str:
    return (
        f"{counts.messages:,} = {counts.routed:,} routed + {counts.unrouted:,} unrouted "
        f"+ {counted(counts.dead_lettered, 'dead letter')}"
    )


# ---- what became of messages

_SHOWN = 2_000


@dataclass(frozen=True, kw_only=True)
class NewestOptions:
    """Options of a command that shows the newest messages.

    Attributes:
        source: Only of this file or Kafka topic, as listed.
        partition: Only of this partition.
        offset: Only at this offset: the line, row or record, from 0.
        limit: The most to show, the newest.
        since: Only of this batch of the stream and later.
    """

    source: str | None = option(None, metavar="NAME")
    partition: int | None = option(None, range=(0, inf))
    offset: int | None = option(None, range=(0, inf))
    limit: int = option(20, range=(1, 10_000))
    since: int | None = option(None, metavar="BATCH", range=(0, inf))

    def outcomes(
        self, output: str, sink: str, fetch: Fetch | None, subscription: str | None = None
    ) -> list[MessageOutcome]:
        """Return these messages of a job."""
        from selectroute.spark.audit.outcomes import Place, newest_outcomes

        place = Place(self.source, self.partition, self.offset)
        return newest_outcomes(output, sink, self.limit, self.since, fetch, place, subscription)


@takes_options
def deliveries(
    output: JobFolder,
    *,
    subscription: Annotated[
        str | None, typer.Option("--subscription", metavar="ID", help="Only those to this subscription.")
    ] = None,
    newest: NewestOptions,
    kafka: KafkaOptions,
    as_: OutputOption = Output.table,
) -> None:
    """Show the newest deliveries, the newest last, with the message if its source still has it.

    selectroute stream deliveries out --subscription heavy --limit 5

    selectroute stream deliveries out --source a.jsonl --offset 1

    selectroute stream deliveries out --subscription heavy --kafka-servers host:9092

    --source, --partition and --offset select messages: the second example shows who got a line. Records of
    Kafka are read with --kafka-servers; without it only their positions are shown. Exit code 1 if there are
    no deliveries.
    """
    records_of = _records_of(output, kafka)
    found = newest.outcomes(output, "deliveries", records_of.fetch, subscription)
    to = "" if subscription is None else f" to {printable(subscription)}"
    _print(found, as_, f"no deliveries{to}", records_of, named=subscription is None)


@takes_options
def unrouted(
    output: JobFolder, newest: NewestOptions, kafka: KafkaOptions, as_: OutputOption = Output.table
) -> None:
    """Show the newest messages that no subscription got, the newest last, with the message if its source
    still has it.

    selectroute stream unrouted out --limit 5

    A job lists them unless it runs with --unrouted drop. Exit code 1 if there are none.
    """
    records_of = _records_of(output, kafka)
    found = newest.outcomes(output, "unrouted", records_of.fetch)
    _print(found, as_, "no unrouted messages", records_of, named=False)


@takes_options
def explain(
    output: JobFolder,
    *,
    subscription: Annotated[str, typer.Option("--subscription", metavar="ID", help="The subscription's id.")],
    source: Annotated[
        str, typer.Option("--source", metavar="NAME", help="File or Kafka topic of the message.")
    ],
    offset: Annotated[
        int, typer.Option("--offset", min=0, help="Line, row or record of the message, from 0.")
    ],
    partition: Annotated[int, typer.Option("--partition", min=0, help="Partition of the message.")] = 0,
    file_format: Annotated[
        str, typer.Option("--format", help="Format of the files, as in the job's options.")
    ] = "auto",
    bind: Annotated[list[str] | None, flag_of(options_of(RunOptions)["bind"])] = None,
    kafka: KafkaOptions,
    as_: OutputOption = Output.table,
) -> None:
    """Explain why a subscription got a message of the job or not, by the revision that judged the message.

    selectroute stream explain out --subscription a --source 1.jsonl --offset 7

    selectroute stream explain out --subscription a --source t --partition 3 --offset 9 --kafka-servers b:9092

    Shows what became of the message, and the truth of each condition with the values read. The message is
    read from its source again; columns of Parquet that the job binds must be bound here, too. If the revision
    is no longer kept, the newest one is used, and the output says so. Exit code 3 if the job has not read
    such a message, its source no longer has it, or the revision has no such subscription.
    """
    from selectroute.spark import Binding
    from selectroute.spark.audit.outcomes import Place
    from selectroute.spark.audit.why import why

    records_of = _records_of(output, kafka)
    place = Place(source, partition if partition or records_of.partitions else None, offset)
    binding = Binding() if records_of.partitions else Binding.of(bind or [])
    found = why(output, subscription, place, file_format=file_format, binding=binding, fetch=records_of.fetch)
    print(_why_text(found, subscription, place) if as_ is Output.table else _why_json(found))
    if found.unread is None and found.verdict is None:
        raise typer.Exit(NOT_FOUND)


def _why_text(found: Why, id: str, place: Place) -> str:
    where = printable(str(place), _SHOWN)
    lines = [f"batch {found.batch} read {where}, and judged it by revision {found.revision}"]
    lines += [f"{printable(id)} got it in batch {one.batch}" for one in found.deliveries]
    for letter in found.letters:
        whose = "the delivery" if letter.subscription is not None else "the message"
        said = f"{letter.reason}: {printable(letter.message, _SHOWN)}"
        lines.append(f"{whose} is a dead letter of batch {letter.batch}: {said}")
        if letter.replay is not None:
            again = f"the replay in batch {letter.replay} judged it again, by revision"
            lines.append(f"{again} {found.replays[letter.replay]}: {_became(found, letter.replay, id)}")
    if not found.deliveries and not found.letters:
        lines.append(f"{printable(id)} did not get it")
    if found.unread is not None:
        lines.append(f"it is not a message: {printable(found.unread, _SHOWN)}")
    elif found.subscription is None or found.verdict is None or found.message is None:
        lines.append(f"revision {found.revision} has no subscription {printable(id)}")
    else:
        if found.newest:
            lines.append(
                f"revision {found.revision} is no longer kept; by the newest, {found.verdict['revision']}:"
            )
        lines.append(as_text(found.subscription, found.message, found.verdict, None))
    return "\n".join(lines)


def _became(found: Why, replay: int, id: str) -> str:
    """Return what came of a message in a replay, as a clause."""
    if any(one.batch == replay for one in found.deliveries):
        return f"{printable(id)} got it"
    if any(one.batch == replay for one in found.letters):
        return "it is a dead letter again"
    return f"{printable(id)} did not get it"


_OF_LETTER = ("batch", "stage", "reason", "message", "subscription", "replay")


def _why_json(found: Why) -> str:
    data: dict[str, Any] = {
        "batch": found.batch,
        "revision": found.revision,
        "deliveries": [one.batch for one in found.deliveries],
        "dead_letters": [{name: getattr(letter, name) for name in _OF_LETTER} for letter in found.letters],
        "replays": [{"batch": batch, "revision": revision} for batch, revision in found.replays.items()],
        "unread": found.unread,
        "newest": found.newest,
    }
    if found.verdict is None:
        return json.dumps(data | {"verdict": None})
    return json_with(data, "verdict", as_json_text({}, found.verdict))


class _Records(NamedTuple):
    """Messages of a job: whether they are in partitions, and how records of Kafka are fetched, if at all.
    ``hint`` ends the sentence on a message that was not fetched.
    """

    partitions: bool
    fetch: Fetch | None
    hint: str


def _records_of(output: str, kafka: KafkaOptions) -> _Records:
    """Return how the messages of a job are read. Refuses servers for a job that reads no topics."""
    from selectroute.spark.job import job_record
    from selectroute.spark.sources.kafka.config import PREFIX

    record = job_record(output)
    is_kafka = record["input"].startswith(PREFIX)
    if (kafka.kafka_servers or kafka.kafka_config) and not is_kafka:
        name = "--kafka-servers" if kafka.kafka_servers else "--kafka-config"
        raise typer.BadParameter(f"the job reads files, in {record['input']}", param_hint=name)
    cluster = kafka.cluster()
    if cluster is not None:
        return _Records(is_kafka, _fetch(cluster, record), "")
    hint = "; --kafka-servers reads it" if is_kafka else ""
    return _Records(has_partitions(record), None, hint)


def _print(found: list[MessageOutcome], as_: Output, none: str, records_of: _Records, *, named: bool) -> None:
    """Print outcomes, with their subscriptions if ``named``."""
    from selectroute.spark.audit.outcomes import Place

    with records(as_, several=True) as add:
        for one in found:
            if as_ is not Output.table:
                add(json.dumps(asdict(one)))
                continue
            id = "" if one.message_id is None else f", {printable(one.message_id)}"
            to = f" to {printable(one.subscription)}" if named and one.subscription is not None else ""
            place = Place(one.source, one.partition if records_of.partitions else None, one.offset)
            add(f"batch {one.batch}, revision {one.revision}, {printable(str(place), _SHOWN)}{id}{to}")
            if one.headers:
                add(f"  {printable('  '.join(map(_header, one.headers)), _SHOWN)}")
            add(f"  {printable(_shown(one, records_of.hint), _SHOWN)}")
    if not found:
        if as_ is Output.table:
            typer.echo(none, err=True)
        raise typer.Exit(FAILURE)


def _shown(one: MessageOutcome, hint: str) -> str:
    if one.missing is not None:
        return f"no message: {one.missing}{hint}"
    return "no value" if one.message is None else one.message


def _header(header: tuple[str, str | None]) -> str:
    name, value = header
    return name if value is None else f"{name}={value}"


def _fetch(cluster: KafkaCluster, record: Mapping[str, Any]) -> Fetch:
    """Return a function that reads records of the job's cluster, and refuses other clusters."""

    def fetch(positions: list[Range]) -> Mapping[Range, Record]:
        from selectroute.kafka.reading import records_at
        from selectroute.spark.audit.audit import check_system

        if not positions:
            return {}
        with progress(f"reading {counted(len(positions), 'record')} of Kafka"), cluster.wire() as wire:
            check_system(record, wire)
            return records_at(wire, positions)

    return fetch
