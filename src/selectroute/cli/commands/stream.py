"""``selectroute stream status | audit | deliveries | unrouted | explain``: state of a job and what became of
messages, from its output folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from selectroute.cli.commands.stream_run import RunOptions
from selectroute.cli.commands.subscription import as_json_text, as_text
from selectroute.cli.exits import FAILURE, NOT_FOUND
from selectroute.cli.options import flag_of, takes_options
from selectroute.cli.output import SHOWN, Output, OutputOption, json_with, print_result, progress, records
from selectroute.job_options import REQUIRED, option, options_of
from selectroute.selector.sentences import counted, printable

if TYPE_CHECKING:
    from selectroute.kafka.record import Range, Record
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
    """Return whether the messages of a job have partitions, by its record: messages of Kafka and of a
    DataFrame have, messages of files do not.
    """
    from selectroute.spark.sources.checkpoint import FRAME
    from selectroute.spark.sources.kafka.config import PREFIX

    return str(record["input"]).startswith((PREFIX, FRAME))


_TOP: Final = "Also show the N subscriptions with the most deliveries; reads all deliveries."


@app.command()
def status(
    output: JobFolder,
    top: Annotated[int, typer.Option(min=0, max=10_000, metavar="N", help=_TOP, show_default=False)] = 0,
    as_: OutputOption = Output.table,
) -> None:
    """Show the progress of a job: newest batch and revision, total counts, whether it is running.

    selectroute stream status out --top 10
    """
    from selectroute.spark.job_administration import status as status_of

    state = status_of(output)
    most = None
    if top:
        from selectroute.spark.audit.outcomes import busiest

        with progress("counting deliveries"):
            most = busiest(output, top)
    data = asdict(state)
    newest = f"batch {state.batch}, revision {state.revision}, {state.committed}"
    rows = {
        "job": f"{'running' if state.running else 'not running'}, query {state.query or 'not begun'}",
        "input": state.input,
        "batches": f"{state.batches:,} committed, {_side(state)}",
        "newest": newest if state.batch is not None else "none yet",
        "published": "nothing" if state.published is None else f"revision {state.published}",
        "planned": ", ".join(f"batch {batch}" for batch in state.planned) or "nothing more",
        "messages": _accounted(state.counts),
        "deliveries": f"{state.counts.deliveries:,}, {state.counts.refused:,} refused",
    }
    if state.waiting:
        when = "after the running batch" if state.running else "at the next start"
        rows["waiting"] = f"{counted(len(state.waiting), 'requested replay')}, to be made {when}"
    if state.changed:
        more = len(state.changed) - 3
        named = ", ".join(map(printable, state.changed[:3])) + (f" and {more:,} more" if more > 0 else "")
        files = counted(len(state.changed), "input file")
        rows["changed"] = f"{files} changed after being read, and will not be read again: {named}"
    if most is not None:
        data["top"] = [{"subscription": id, "deliveries": n} for id, n in most.counts]
        widest = max((len(f"{n:,}") for _, n in most.counts), default=0)
        lines = [f"{n:>{widest},}  {printable(id)}" for id, n in most.counts] or ["none"]
        if most.absent:
            lines.append(f"not counted, because moved away: {counted(most.absent, 'file')}")
        rows["busiest"] = f"\n{'':<12}".join(lines)
    print_result(as_, _lines(rows), data)


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of an audit.

    Attributes:
        digests: Read every published file and check its SHA-256.
        recount: Read the inputs that still exist again and count.
        file_format: Format of the inputs: parquet, json or auto, as in the job.
    """

    digests: bool = option(True, flag="digests/--no-digests")
    recount: bool = option(False)
    file_format: str = option("auto", flag="format")


@app.command()
@takes_options
def audit(
    output: JobFolder, options: AuditOptions, kafka: KafkaOptions, as_: OutputOption = Output.table
) -> None:
    """Check that the accounts balance: messages in = routed + unrouted + dead letters, in every batch; each
    input of Spark is in exactly one batch; each published file is unchanged. With --kafka-servers also that
    the topics are those that were read and written, not created again or short of records.

    Exit code 1 if a check fails, with a line for each failure. Read-only; the job may be running.
    """
    from selectroute.spark.audit.audit import audit as audit_of

    cluster = kafka.cluster()
    with progress("auditing batches") as advance:
        audited = audit_of(output, **asdict(options), kafka=cluster, advance=advance)
    inputs = f"{audited.inputs:,}"
    if options.recount:
        inputs += f", batches recounted: {audited.recounted:,}"
    if audited.skipped:
        inputs += f", skipped: {audited.skipped:,} that were gone at first sight"
    rows = {
        "batches": f"{audited.batches:,}, {_side(audited)}",
        "inputs": inputs,
        "messages": _accounted(audited.counts),
        "deliveries": f"{audited.counts.deliveries:,}, {audited.counts.refused:,} refused",
        "files": f"{audited.files:,} as written, {counted(audited.bytes, 'byte')}",
        "moved away": counted(len(audited.absent), "folder"),
        "to come": ", ".join(f"batch {batch}" for batch in audited.pending) or "nothing is half done",
    }
    lines = [_lines(rows)]
    for finding in audited.findings:
        where = "" if finding.batch is None else f"batch {finding.batch}: "
        lines.append(_lines({"WRONG": f"{where}{finding.sentence}"}))
    print_result(as_, "\n".join(lines), asdict(audited))
    if audited.findings:
        raise typer.Exit(1)


def _lines(rows: Mapping[str, str]) -> str:
    """Return rows as lines, their texts in a column."""
    return "\n".join(f"{name:<12}{text}" for name, text in rows.items())


def _side(state: JobStatus | Audit) -> str:
    return f"{counted(state.backfills, 'backfill')}, {counted(state.replays, 'replay')}"


def _accounted(counts: Counts) -> str:
    return (
        f"{counts.messages:,} = {counts.routed:,} routed + {counts.unrouted:,} unrouted "
        f"+ {counted(counts.dead_lettered, 'dead letter')}"
    )


# ---- what became of messages


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
    outcomes = newest.outcomes(output, "deliveries", records_of.fetch, subscription)
    to = "" if subscription is None else f" to {printable(subscription)}"
    _print(outcomes, as_, f"no deliveries{to}", records_of, named=subscription is None)


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
    outcomes = newest.outcomes(output, "unrouted", records_of.fetch)
    _print(outcomes, as_, "no unrouted messages", records_of, named=False)


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """Options of an explanation.

    Attributes:
        subscription: The subscription's id.
        source: File or Kafka topic of the message.
        offset: Line, row or record of the message, from 0.
        partition: Partition of the message.
        file_format: Format of the files, as in the job's options.
    """

    subscription: str = option(REQUIRED, metavar="ID")
    source: str = option(REQUIRED, metavar="NAME")
    offset: int = option(REQUIRED, range=(0, inf))
    partition: int = option(0, range=(0, inf))
    file_format: str = option("auto", flag="format")


@takes_options
def explain(
    output: JobFolder,
    options: ExplainOptions,
    *,
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
    partition = options.partition if options.partition or records_of.partitions else None
    place = Place(options.source, partition, options.offset)
    binding = Binding() if records_of.partitions else Binding.of(bind or [])
    id, file_format = options.subscription, options.file_format
    reasons = why(output, id, place, file_format=file_format, binding=binding, fetch=records_of.fetch)
    print(_why_text(reasons, id, place) if as_ is Output.table else _why_json(reasons))
    if reasons.unread is None and reasons.verdict is None:
        raise typer.Exit(NOT_FOUND)


def _why_text(reasons: Why, id: str, place: Place) -> str:
    where = printable(str(place), SHOWN)
    lines = [f"batch {reasons.batch} read {where}, and judged it by revision {reasons.revision}"]
    lines += [f"{printable(id)} got it in batch {delivery.batch}" for delivery in reasons.deliveries]
    for letter in reasons.letters:
        whose = "the delivery" if letter.subscription is not None else "the message"
        said = f"{letter.reason}: {printable(letter.message, SHOWN)}"
        lines.append(f"{whose} is a dead letter of batch {letter.batch}: {said}")
        if letter.replay is not None:
            again = f"the replay in batch {letter.replay} judged it again, by revision"
            lines.append(f"{again} {reasons.replays[letter.replay]}: {_became(reasons, letter.replay, id)}")
    if not reasons.deliveries and not reasons.letters:
        lines.append(f"{printable(id)} did not get it")
    if reasons.unread is not None:
        lines.append(f"it is not a message: {printable(reasons.unread, SHOWN)}")
    elif reasons.subscription is None or reasons.verdict is None or reasons.message is None:
        lines.append(f"revision {reasons.revision} has no subscription {printable(id)}")
    else:
        if reasons.newest:
            newest = reasons.verdict["revision"]
            lines.append(f"revision {reasons.revision} is no longer kept; by the newest, {newest}:")
        lines.append(as_text(reasons.subscription, reasons.message, reasons.verdict, None))
    return "\n".join(lines)


def _became(reasons: Why, replay: int, id: str) -> str:
    """Return the result of a message in a replay, as a clause."""
    if any(delivery.batch == replay for delivery in reasons.deliveries):
        return f"{printable(id)} got it"
    if any(letter.batch == replay for letter in reasons.letters):
        return "it is a dead letter again"
    return f"{printable(id)} did not get it"


_OF_LETTER = ("batch", "stage", "reason", "message", "subscription", "replay")


def _why_json(reasons: Why) -> str:
    data: dict[str, Any] = {
        "batch": reasons.batch,
        "revision": reasons.revision,
        "deliveries": [delivery.batch for delivery in reasons.deliveries],
        "dead_letters": [{name: getattr(letter, name) for name in _OF_LETTER} for letter in reasons.letters],
        "replays": [{"batch": batch, "revision": revision} for batch, revision in reasons.replays.items()],
        "unread": reasons.unread,
        "newest": reasons.newest,
    }
    if reasons.verdict is None:
        return json.dumps(data | {"verdict": None})
    return json_with(data, "verdict", as_json_text({}, reasons.verdict))


class _Records(NamedTuple):
    """Messages of a job: whether they have partitions, and what fetches records of Kafka, if anything.
    ``hint`` ends the sentence about a message that was not fetched.
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


def _print(
    outcomes: list[MessageOutcome], as_: Output, none: str, records_of: _Records, *, named: bool
) -> None:
    """Print outcomes, with their subscriptions if ``named``."""
    from selectroute.spark.audit.outcomes import Place

    with records(as_, several=True) as add:
        for outcome in outcomes:
            if as_ is not Output.table:
                add(json.dumps(asdict(outcome)))
                continue
            id = "" if outcome.message_id is None else f", {printable(outcome.message_id)}"
            to = outcome.subscription if named else None
            whose = id if to is None else f"{id} to {printable(to)}"
            partition = outcome.partition if records_of.partitions else None
            where = printable(str(Place(outcome.source, partition, outcome.offset)), SHOWN)
            add(f"batch {outcome.batch}, revision {outcome.revision}, {where}{whose}")
            if outcome.headers:
                add(f"  {printable('  '.join(map(_header, outcome.headers)), SHOWN)}")
            add(f"  {printable(_shown(outcome, records_of.hint), SHOWN)}")
    if not outcomes:
        if as_ is Output.table:
            typer.echo(none, err=True)
        raise typer.Exit(FAILURE)


def _shown(outcome: MessageOutcome, hint: str) -> str:
    if outcome.missing is not None:
        return f"no message: {outcome.missing}{hint}"
    return "no value" if outcome.message is None else outcome.message


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
