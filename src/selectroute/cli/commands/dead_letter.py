"""``selectroute dead-letter list | replay``: messages that a fan-out job could not read, judge or deliver."""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selectroute.cli.commands.stream import JobFolder, has_partitions
from selectroute.cli.options import takes_options
from selectroute.cli.output import SHOWN, Output, OutputOption, records
from selectroute.job_options import option
from selectroute.selector.sentences import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from selectroute.job_output import DeadLetter
    from selectroute.spark.replay.request import ReplayFilterSpec

app = typer.Typer(
    no_args_is_help=True, help="List and replay what a streaming fan-out could not read, judge or deliver."
)

_SHOWN_BYTES = 200
_POLL_SECONDS = 0.5
_COUNTS = ("messages", "routed", "unrouted", "dead_lettered", "deliveries", "refused")


class FailureStage(StrEnum):
    """Stage at which a message or a delivery failed."""

    read = "read"
    parse = "parse"
    judge = "judge"
    deliver = "deliver"


def _reasons() -> list[str]:
    from selectroute.spark.replay.letters import REASONS

    return sorted(set().union(*REASONS.values()))


def _reasons_for(incomplete: str) -> list[str]:
    return [reason for reason in _reasons() if reason.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class LetterOptions:
    """Options that select dead letters, each of which can be given several times.

    Attributes:
        batches: Only of this batch.
        stages: Only of this stage.
        reasons: Only for this reason, such as not-json.
        subscriptions: Only refused deliveries to this subscription.
        sources: Only of this file or Kafka topic, as the list names it.
        partitions: Only of this partition.
        offsets: Only at this offset: the line, row or record.
    """

    batches: tuple[int, ...] = option((), flag="batch")
    stages: tuple[FailureStage, ...] = option((), flag="stage")
    reasons: tuple[str, ...] = option((), metavar="REASON", flag="reason", complete=_reasons_for)
    subscriptions: tuple[str, ...] = option((), flag="subscription")
    sources: tuple[str, ...] = option((), flag="source")
    partitions: tuple[int, ...] = option((), flag="partition")
    offsets: tuple[int, ...] = option((), flag="offset")

    def filter(self) -> ReplayFilterSpec:
        """Return the filter of the letters. Raises BadParameter for an unknown reason."""
        from selectroute.selector.errors import did_you_mean
        from selectroute.spark.replay.request import ReplayFilterSpec

        known = _reasons()
        for reason in self.reasons:
            if reason not in known:
                sentence = f"there is no reason {reason!r}: {did_you_mean(reason, known)}"
                raise typer.BadParameter(sentence, param_hint="'--reason'")
        return ReplayFilterSpec(**asdict(self))


@app.command("list")
@takes_options
def list_(
    output: JobFolder,
    letters: LetterOptions,
    left: Annotated[bool, typer.Option("--left", help="Only those that no replay took.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="The most to print; 0 for all.")] = 1_000,
    count: Annotated[bool, typer.Option("--count", help="Only print counts by reason.")] = False,
    as_: OutputOption = Output.table,
) -> None:
    """Print dead letters in the order of their batches: reason, position and bytes.

    Options from --batch to --offset can be given several times. In JSON the bytes are "raw", a text if they
    are UTF-8, else "raw_base64". Exit code 1 if there is none.
    """
    from selectroute.spark.job import job_record
    from selectroute.spark.replay.letters import wanted_letters

    wanted = wanted_letters(output, letters.filter(), left_only=left)
    if count:
        printed = _print_counts(Counter((letter.stage, letter.reason) for letter in wanted), as_)
    else:
        shown = (_as_json(letter) for letter in islice(wanted, limit or None))
        printed = _print(shown, as_, partial(_text, has_partitions(job_record(output))))
        rest = sum(1 for _ in wanted) if limit and printed == limit else 0
        if rest:
            typer.echo(f"and {rest:,} more: --limit 0 prints all", err=True)
    if not printed:
        typer.echo("no dead letters", err=True)
        raise typer.Exit(1)


@app.command()
@takes_options
def replay(
    output: JobFolder,
    letters: LetterOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print counts of those to replay, by reason.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job has replayed them.")] = False,
    as_: OutputOption = Output.table,
) -> None:
    """Have the job process dead letters again, by the newest revision and after any other repair. Each is
    replayed once; if it fails again, it is a dead letter of the replay.

    This only files a request: the job replays between two batches if it runs, else at its next start, with
    separate counts ("replay" in accounting.jsonl). Options from --batch to --offset can be given several
    times. Exit code 1 if there is nothing to replay.
    """
    from selectroute.spark.replay.letters import count_left
    from selectroute.spark.replay.request import as_of_now, write_request

    # Counted and written as one: later letters are not part of it.
    request = as_of_now(output, letters.filter())
    left = count_left(output, request)
    if not left:
        typer.echo("no dead letters to replay", err=True)
        raise typer.Exit(1)
    if dry_run:
        _print_counts(left, as_)
        return
    write_request(output, replace(request, letters=left.total()))
    text = f"request {request.id}: {counted(left.total(), 'dead letter')}"
    if not wait:
        _print([{"request": request.id, "letters": left.total()}], as_, lambda _: text)
        return
    typer.echo(text, err=True)
    _print(_replayed(output, request.id), as_, _text_of_replay)


def _replayed(output: str, request: str) -> Iterable[dict[str, Any]]:
    """Wait until a request is done, and yield the results of its replays."""
    from selectroute.spark.batch.commits import REPLAY, Commits
    from selectroute.spark.job_administration import status
    from selectroute.spark.replay.request import replays_of

    if not status(output).running:
        typer.echo("the job is not running: it replays them at its next start", err=True)
    while (replays := replays_of(output, request)) is None:
        time.sleep(_POLL_SECONDS)
    commits = Commits(output)
    for number in replays:
        commit = commits.read(number) or {}
        counts = commit["counts"]
        record = commit[REPLAY]
        yield {
            "batch": number,
            "revision": commit["revision"],
            "batches": record["batches"],
            "letters": record["letters"],
            **{name: counts[name] for name in _COUNTS},
            "missing": [item["why"] for item in record["missing"]],
        }


def _text_of_replay(line: dict[str, Any]) -> str:
    text = (
        f"replay {line['batch']}  revision {line['revision']}  {counted(line['letters'], 'dead letter')}  "
        f"{counted(line['messages'], 'message')}: {line['routed']:,} routed, {line['unrouted']:,} unrouted, "
        f"{counted(line['dead_lettered'], 'dead letter')}; "
        f"{counted(line['deliveries'], 'delivery', 'deliveries')}, "
        f"{line['refused']:,} refused"
    )
    return "\n    missing: ".join([text, *line["missing"]])


def _print_counts(counted: Counter[tuple[str, str]], as_: Output) -> int:
    rows = counted.most_common()
    lines = [{"stage": stage, "reason": reason, "count": number} for (stage, reason), number in rows]
    return _print(lines, as_, lambda line: f"{line['count']:>10,}  {line['stage']}  {line['reason']}")


def _print(lines: Iterable[dict[str, Any]], as_: Output, text: Callable[[dict[str, Any]], str]) -> int:
    """Print lines, as texts or as JSON; return their number."""
    printed = 0
    with records(as_, several=True) as add:
        for line in lines:
            add(text(line) if as_ is Output.table else json.dumps(line, ensure_ascii=False))
            printed += 1
    return printed


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    data = asdict(letter)
    raw, key, headers = data.pop("raw"), data.pop("key"), data.pop("headers")
    data |= _bytes("raw", raw)
    if headers is not None:  # from Kafka
        data |= _bytes("key", key)
        data["headers"] = [{"name": name, **_bytes("value", value)} for name, value in headers]
    return data


def _bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as a JSON member: a text if they are UTF-8, else base64."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _text(partitions: bool, line: dict[str, Any]) -> str:
    from selectroute.spark.audit.outcomes import Place

    place = Place(line["source"], line["partition"] if partitions else None, line["offset"])
    whose = f" for {line['subscription']}" if line["subscription"] else ""
    where = printable(f"{place}{whose}", SHOWN)
    message = printable(line["message"], SHOWN)
    shown = f"batch {line['batch']}  {line['stage']}  {line['reason']}  {where}\n    {message}"
    raw = line.get("raw") or line.get("raw_base64")
    if raw is None:
        return shown
    more = f" … ({len(raw):,} in all)" if len(raw) > _SHOWN_BYTES else ""
    return f"{shown}\n    {raw[:_SHOWN_BYTES]!r}{more}"
