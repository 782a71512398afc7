"""``selectroute subscription add | get | list | replace | remove | pause | resume | import | export |
explain``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from selectroute.cli.commands.selector import FirstLines, warn_of_selector, warn_of_selectors
from selectroute.cli.connect import (
    RegistryOption,
    SnapshotsOption,
    connected,
    explaining,
    opened_database,
    registry_settings,
)
from selectroute.cli.inputs import MessagesArgument, SkipOption, answering, naming_lines, opened, up_to_first
from selectroute.cli.options import takes_options
from selectroute.cli.output import (
    SHOWN,
    Advance,
    Output,
    OutputOption,
    print_result,
    print_table,
    progress,
    records,
)
from selectroute.index.specification import Destination, SubscriptionSpec, SubscriptionStatus
from selectroute.job_options import option
from selectroute.registry.model import From, Order, Subscription
from selectroute.selector import Message, Selector, SelectRouteError
from selectroute.selector.dialect import EXTENDED, UnknownDialectError
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.limits import MAX_LINE, UNLIMITED
from selectroute.selector.sentences import counted, printable

if TYPE_CHECKING:
    from selectroute.client import SubscriptionRegistry
    from selectroute.index.match_report import SnapshotRow
    from selectroute.registry.model import EffectiveFrom, Subscription

_COMPLETED: Final = 1_000
"""Subscriptions read to complete an id: a key press must not read a million."""


def known_dialect(name: str | None) -> str | None:
    """Return the name of a dialect. Raises BadParameter if it is unknown."""
    try:
        return None if name is None else dialect_named(name).name
    except UnknownDialectError as error:
        raise typer.BadParameter(str(error), param_hint="'--dialect'") from error


def dialects_for(incomplete: str) -> list[str]:
    """Return the dialects with this prefix, for shell completion."""
    from selectroute.selector import DIALECTS

    return [name for name in DIALECTS if name.startswith(incomplete)]


def ids_for(incomplete: str) -> list[str]:
    """Return ids with this prefix, for shell completion: only of a database in the settings, so that a key
    press does not call a service.
    """
    try:
        with opened_database(None, "completion") as registry:
            ids = [subscription.id for subscription in registry.list(limit=_COMPLETED).items]
    except Exception:  # completion must not show errors
        return []
    return [id for id in ids if id.startswith(incomplete)]


IdArgument = Annotated[
    str | None, typer.Argument(metavar="ID", help="The subscription's id.", autocompletion=ids_for)
]
ByNameOption = Annotated[
    str | None, typer.Option("--by-name", metavar="NAME", help="The subscription with this name.")
]
_UNCHANGED: Final = "as it is"
SELECTOR_HELP: Final = (
    "The selector; - reads it from standard input. Write -- before one that begins with a dash."
)
IfRevisionOption = Annotated[
    int | None,
    typer.Option(
        "--if-revision",
        metavar="N",
        min=0,
        max=2**63 - 1,
        help="Only if its revision is still N: otherwise nothing changes, and the exit code is 4.",
    ),
]
WaitOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Wait at most this long until a batch has used the change; exit code 1 if none has.",
    ),
]


def chosen(connection: SubscriptionRegistry, id: str | None, by_name: str | None) -> str:
    """Return the given id, or the id of the name. Raises BadParameter unless exactly one is given."""
    if (id is None) == (by_name is None):
        raise typer.BadParameter("give an id, or --by-name", param_hint="ID")
    return id if id is not None else connection.get_by_name(by_name or "").id


def selector_text(selector: str) -> str:
    """Return the selector; for ``-`` read it from standard input, without the final line feed."""
    if selector != "-":
        return selector
    with opened("-") as lines:
        text = ""
        for line in lines:
            text += line
            if len(text) > MAX_LINE:
                raise typer.BadParameter(f"the selector has more than {MAX_LINE:,} characters")
    return text.rstrip("\r\n")


def labels_of(texts: Sequence[str]) -> dict[str, str]:
    """Parse labels given as KEY=VALUE."""
    pairs = [label.partition("=") for label in texts]
    if not all(key and sign for key, sign, _ in pairs):
        raise typer.BadParameter("a label must be KEY=VALUE", param_hint="--label")
    return {key: text for key, _, text in pairs}


def destination_of(text: str | None) -> Destination:
    """Parse a destination: none, queue:NAME or kafka:TOPIC; the registry refuses others."""
    if text is None:
        return Destination()
    kind, sign, name = text.partition(":")
    if not sign and kind != "none":
        shown = printable(text, 48)
        what = f"write queue:{shown}, kafka:{shown} or none: the queue or topic for the deliveries"
        raise typer.BadParameter(what, param_hint="--destination")
    return Destination.from_json({"kind": kind, "name": name if sign else None})


@dataclass(frozen=True, kw_only=True)
class SpecOptions:
    """Options that are fields of a new subscription.

    Attributes:
        topic: Topics such as a/+/c or a/#.
        dialect: The selector's dialect; see `selector dialects`.
        extended: Use an extended selection provider for the selector (ibm-mq).
        name: A unique name.
        labels: A label; repeatable.
        destination: none, queue:NAME or kafka:TOPIC, for one record per message kafka:TOPIC?grouping=message.
        id: An id.
    """

    topic: str | None = option(None, metavar="FILTER", shown_default="every topic")
    dialect: str | None = option(None, shown_default="jms", complete=dialects_for)
    extended: bool = option(False)
    name: str | None = option(None, metavar="NAME", shown_default="the id")
    labels: tuple[str, ...] = option((), metavar="KEY=VALUE", flag="label")
    destination: str | None = option(None, metavar="KIND", shown_default="none")
    id: str | None = option(None, metavar="ID", shown_default="generated")

    def spec(self, selector: str, default_dialect: str) -> SubscriptionSpec:
        """Return the specification. Raises BadParameter for an option that cannot be parsed."""
        return SubscriptionSpec(
            selector_text(selector),
            self.topic,
            known_dialect(self.dialect) or default_dialect,
            EXTENDED if self.extended else None,
            self.name,
            destination_of(self.destination),
            labels_of(self.labels),
        )


@dataclass(frozen=True, kw_only=True)
class PatchOptions:
    """Options that change fields of a subscription.

    Attributes:
        topic: Other topics; '' for every topic.
        dialect: Another dialect.
        name: Another name.
        labels: A new label, or a new value; KEY= removes it.
        destination: none, queue:NAME or kafka:TOPIC, for one record per message kafka:TOPIC?grouping=message.
    """

    topic: str | None = option(None, metavar="FILTER", shown_default=_UNCHANGED)
    dialect: str | None = option(None, shown_default=_UNCHANGED, complete=dialects_for)
    name: str | None = option(None, shown_default=_UNCHANGED)
    labels: tuple[str, ...] = option((), metavar="KEY=VALUE", flag="label")
    destination: str | None = option(None, metavar="KIND", shown_default=_UNCHANGED)

    def patch(self, selector: str | None) -> dict[str, Any]:
        """Return the changes as a merge patch. Raises BadParameter for an option that cannot be parsed."""
        fields = {"selector": selector, "dialect": known_dialect(self.dialect), "name": self.name}
        patch: dict[str, Any] = {field: value for field, value in fields.items() if value is not None}
        if self.topic is not None:
            patch["topic"] = self.topic or None
        if self.labels:
            patch["labels"] = {key: text or None for key, text in labels_of(self.labels).items()}
        if self.destination is not None:
            target = destination_of(self.destination)
            patch["destination"] = {"kind": target.kind, "name": target.name}
        return patch


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """Options that filter subscriptions.

    Attributes:
        topic: With this topic filter.
        status: With this status.
        dialect: With this dialect.
        name: With this name.
        label: With this label.
    """

    topic: str | None = option(None, metavar="FILTER")
    status: SubscriptionStatus | None = option(None)  # noqa: RUF009  # it returns a field
    dialect: str | None = option(None, metavar="DIALECT", complete=dialects_for)
    name: str | None = option(None, metavar="NAME")
    label: str | None = option(None, metavar="KEY=VALUE")

    def filters(self) -> dict[str, Any]:
        """Return the filters as `Registry.list` takes them. Raises BadParameter for an invalid one."""
        if self.label is not None:
            labels_of([self.label])
        return {**asdict(self), "dialect": known_dialect(self.dialect)}


# ---- one subscription, and lists

app = typer.Typer(
    no_args_is_help=True, help="Subscriptions of a registry. Each change takes effect with one batch."
)

_PAGE: Final = 1_000
_LOOK_SECONDS: Final = 0.2


@app.command()
@takes_options
def add(
    selector: Annotated[
        str, typer.Argument(metavar="SELECTOR", help=SELECTOR_HELP, show_default="every message")
    ] = "",
    *,
    fields: SpecOptions,
    wait: WaitOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Register a subscription, and print it with its id.

    selectroute subscription add "JMSType = 'car' AND weight > 2500" --topic 'cars/+' --id heavy

    selectroute subscription add - --dialect ibm-mq --name invoices --label team=billing < selector.txt

    Exit code 4 if the id or the name is taken, 5 if the selector is invalid.
    """
    _, settings = registry_settings(registry)
    spec = fields.spec(selector, settings.dialect)  # before a database is created for an invalid option
    with connected(registry, create=True) as connection:
        registered = connection.register(spec, id=fields.id)
        warn_of_selector(as_data(registered, None))
        _changed(connection, registered, wait, output)


@app.command()
def get(
    id: IdArgument = None,
    by_name: ByNameOption = None,
    wait: WaitOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Print a subscription, and for each query the first batch that used it.

    selectroute subscription get heavy

    selectroute subscription get --by-name invoices -o json

    Exit code 3 if there is no such subscription.
    """
    with connected(registry) as connection:
        subscription = connection.get(chosen(connection, id, by_name))
        _changed(connection, subscription, 0.0 if wait is None else wait, output, must=wait is not None)


@app.command()
def history(
    id: IdArgument = None,
    by_name: ByNameOption = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="The most changes to print.")] = 50,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """List the changes of a subscription, the newest first: when, who, and what it was then.

    selectroute subscription history heavy

    A change is by a token, with its id and name; by anybody, of a service without tokens; or by a user of
    this machine, with direct access to the database. Exit code 3 if there never was such a subscription.
    """
    with connected(registry) as connection:
        of = chosen(connection, id, by_name)
        changes, _ = connection.history(of, limit=limit)
        if not changes:
            connection.get(of)  # raises the error
    if output is not Output.table:
        with records(output, several=True) as add:
            for change in changes:
                add(json.dumps(change.to_json()))
        return
    for change in changes:
        after = change.subscription
        shown = "" if after is None else f"  {printable(after.selector, SHOWN) or 'every message'}"
        who = printable(change.actor)
        print(f"{change.revision:>8}  {change.time:%Y-%m-%d %H:%M:%S}  {change.op:<7}  {who}{shown}")


@app.command("list")
@takes_options
def list_(
    wanted: FilterOptions,
    order: Annotated[Order, typer.Option(help="By id, by name, or the newest change first.")] = "id",
    limit: Annotated[int, typer.Option(min=1, help="The most to print.")] = 50,
    all_: Annotated[bool, typer.Option("--all", help="Print all subscriptions.")] = False,
    cursor: Annotated[str | None, typer.Option(help="Continue a previous list.")] = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """List subscriptions, in the order of their ids unless another is given.

    selectroute subscription list --topic 'cars/+' --status active

    selectroute subscription list --all -o ndjson

    If there are more, standard error shows the --cursor to continue with.
    """
    filters = wanted.filters()
    with connected(registry) as connection, records(output, several=True) as add_record:
        listed = 0
        while all_ or listed < limit:
            size = _PAGE if all_ else min(limit - listed, _PAGE)
            page = connection.list(limit=size, cursor=cursor, order=order, **filters)
            if output is not Output.table:
                for subscription in page.items:
                    add_record(json.dumps(subscription.to_json()))
            elif page.items:
                print_rows(page.items, with_heading=not listed)
            listed += len(page.items)
            cursor = page.next_cursor
            if cursor is None:
                if not listed and output is Output.table:
                    print("no subscriptions", file=sys.stderr)
                return
        print(f"there are more: --cursor {cursor}", file=sys.stderr)


@app.command()
@takes_options
def replace(
    id: IdArgument = None,
    selector: Annotated[
        str | None, typer.Argument(metavar="SELECTOR", help=SELECTOR_HELP, show_default=_UNCHANGED)
    ] = None,
    by_name: ByNameOption = None,
    *,
    fields: PatchOptions,
    if_revision: IfRevisionOption = None,
    wait: WaitOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Change the given fields of a subscription. With --by-name, SELECTOR is the only argument.

    selectroute subscription replace heavy "JMSType = 'car' AND weight > 3000"

    selectroute subscription replace heavy --topic 'cars/#' --if-revision 17 --wait 30

    Each message is routed by exactly one revision: --wait shows the first batch that used this one.
    """
    if by_name is not None and id is not None and selector is None:
        id, selector = None, id
    patch = fields.patch(None if selector is None else selector_text(selector))
    if not patch:
        raise typer.BadParameter("give a field to change: a selector, --topic, --label, …")
    with connected(registry) as connection:
        subscription = connection.change(chosen(connection, id, by_name), patch, expected=if_revision)
        if "selector" in patch or "dialect" in patch:
            warn_of_selector(as_data(subscription, None))
        _changed(connection, subscription, wait, output)


@app.command()
def remove(
    id: IdArgument = None,
    by_name: ByNameOption = None,
    if_revision: IfRevisionOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Remove a subscription, and print its last state.

    selectroute subscription remove heavy --if-revision 18
    """
    with connected(registry) as connection:
        subscription = connection.remove(chosen(connection, id, by_name), expected=if_revision)
        print_result(output, paragraph(subscription, None, past=True), subscription.to_json())


@app.command()
def pause(
    id: IdArgument = None,
    by_name: ByNameOption = None,
    if_revision: IfRevisionOption = None,
    wait: WaitOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Pause a subscription: it gets no messages until it is resumed.

    selectroute subscription pause heavy
    """
    with connected(registry) as connection:
        subscription = connection.pause(chosen(connection, id, by_name), expected=if_revision)
        _changed(connection, subscription, wait, output)


@app.command()
def resume(
    id: IdArgument = None,
    by_name: ByNameOption = None,
    from_: Annotated[
        From, typer.Option("--from", help="Only with future messages, or also with the missed ones.")
    ] = "latest",
    if_revision: IfRevisionOption = None,
    wait: WaitOption = None,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Resume a paused subscription, and show which queries can deliver the missed messages.

    selectroute subscription resume heavy --from last-processed
    """
    with connected(registry) as connection:
        resumed = connection.resume(chosen(connection, id, by_name), from_=from_, expected=if_revision)
        more: dict[str, Any] = {}
        if from_ == "last-processed":
            more["backfill"] = [asdict(query) for query in resumed.backfill]
        _changed(connection, resumed.subscription, wait, output, **more)
        if output is Output.table and from_ == "last-processed":
            for query in resumed.backfill:
                can = "delivers what it missed" if query.can_replay else f"cannot: {query.reason}"
                print(f"  backfill      query {query.query} {can}")
            if not resumed.backfill:
                print("  backfill      no query has reported to this registry yet")


def effective(
    connection: SubscriptionRegistry, subscription: Subscription, seconds: float
) -> Sequence[EffectiveFrom]:
    """Return for each query the first batch that used this version of a subscription. If there is none, wait
    at most `seconds` for one.
    """
    until = time.monotonic() + seconds
    while True:
        left = max(until - time.monotonic(), 0.0)
        now, batches = connection.effective_of(subscription.id, wait_seconds=left)
        if now.revision != subscription.revision:
            return []  # changed since: the batches used the later revision
        left = until - time.monotonic()
        if batches or left <= 0:
            return batches
        time.sleep(min(left, _LOOK_SECONDS))


def _changed(
    connection: SubscriptionRegistry,
    subscription: Subscription,
    wait: float | None,
    output: Output,
    *,
    must: bool = True,
    **more: Any,
) -> None:
    """Print a subscription; with `wait`, once a batch has used it, or after this timeout in seconds."""
    batches = None if wait is None else effective(connection, subscription, wait)
    print_result(output, paragraph(subscription, batches), {**as_data(subscription, batches), **more})
    if must and batches == []:
        print(
            f"selectroute: no batch that used revision {subscription.revision} was reported yet",
            file=sys.stderr,
        )
        raise typer.Exit(1)


# ---- import and export: all subscriptions as lines of JSON


def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="SUBS.jsonl", help="Subscriptions, one JSON object per line; - reads standard input."
        ),
    ],
    mode: Annotated[
        Literal["add", "replace"],
        typer.Option(
            help="For an existing id: add refuses it; replace replaces it, and keeps its status unless the "
            "line gives one."
        ),
    ] = "add",
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Accept input without subscriptions, which changes nothing.")
    ] = False,
    output: OutputOption = Output.table,
    registry: RegistryOption = None,
) -> None:
    """Register many subscriptions as one revision, all or none.

    selectroute subscription import subscriptions.jsonl

    selectroute subscription export --registry sqlite:///old.db | selectroute subscription import -

    A line is {"topic": "cars/+", "selector": "JMSType = 'car'"}, optionally with "id", "name", "dialect",
    "seltype", "labels", "destination" and "status". If lines are invalid, the first 20 are listed with their
    errors, and nothing is imported; exit code 5 if the first has an invalid selector. Exit code 1 if the
    input is empty, as after a failed command in a pipe.
    """
    with naming_lines(file), opened(file) as lines:
        first = list(up_to_first(lines))  # before a database is created for nothing
        if not allow_empty and not (first and first[-1].strip()):
            name = "standard input" if file == "-" else file
            raise SelectRouteError(
                f"{name} has no subscriptions: nothing is changed; --allow-empty accepts this"
            )
        with connected(registry, create=True) as connection, progress("importing") as advance:
            kept = FirstLines(chain(first, lines))
            done = connection.import_(_then(kept, advance), mode=mode, progress=lambda rows, _: advance(rows))
    warn_of_selectors(kept.rows(), done.rows)
    text = f"revision {done.revision}: {counted(done.rows, 'subscription')}"
    print_result(output, text, {"rows": done.rows, "revision": done.revision})


def export(
    revision: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="State as of a revision.", show_default="now")
    ] = None,
    registry: RegistryOption = None,
) -> None:
    """Print all subscriptions of one revision, one JSON object per line.

    selectroute subscription export > subscriptions.jsonl

    selectroute subscription export --revision 17 | grep '"cars/+"'
    """
    with connected(registry) as connection, progress("exporting", while_printing=True) as advance:
        for line in _counted(connection.export(revision=revision), advance):
            print(line)


def _then(lines: Iterable[str], advance: Advance) -> Iterator[str]:
    """Yield lines; after the last one, show that the registry is processing them."""
    count = 0
    for line in lines:
        count += 1
        yield line
    advance(f"read {counted(count, 'line')}, waiting for the registry")


def _counted(lines: Iterable[str], advance: Advance) -> Iterator[str]:
    for count, line in enumerate(lines, start=1):
        yield line
        if not count % 1_000:
            advance(count)


# ---- explain


@app.command()
def explain(
    id: Annotated[str, typer.Argument(metavar="ID", help="The subscription's id.")],
    messages: MessagesArgument,
    snapshots: SnapshotsOption = None,
    output: OutputOption = Output.table,
    skip_bad: SkipOption = False,
    registry: RegistryOption = None,
) -> None:
    """Explain why a subscription gets messages or not, by the same matcher as deliveries.

    selectroute subscription explain heavy '{"topic": "cars/eu", "properties": {"weight": "3000"}}'

    selectroute subscription explain heavy messages.jsonl --snapshots subscriptions.db.snapshots

    This explains the newest version of the subscription. Past deliveries used the revision of their batch:
    see `selectroute stream explain`.
    """
    with explaining(registry, snapshots) as source, answering(messages, skip_bad, output) as (inputs, add):
        subscription = source.get(id)
        for entry in inputs:
            data = source.explain(id, entry.message)
            line = {} if entry.line is None else {"line": entry.line}
            add(
                as_text(subscription, entry.message, data, entry.line)
                if output is Output.table
                else as_json_text(line, data)
            )


def as_json_text(line: dict[str, int], data: dict[str, Any]) -> str:
    """Return an explanation as one line of JSON. A local tree may be too deep for ``json.dumps``."""
    tree = data.get("selector")
    if tree is None or isinstance(tree, dict):
        return json.dumps({**line, **data})
    head = json.dumps({**line, **{name: value for name, value in data.items() if name != "selector"}})
    return f'{head[:-1]}, "selector": {tree.to_json()}}}'


def as_text(
    subscription: Subscription | SnapshotRow, message: Message, data: dict[str, Any], line: int | None
) -> str:
    """Return an explanation for people: the verdict, its steps, the tree of the selector."""
    verdict = "gets" if data["matched"] else "does not get"
    which = "the message" if line is None else f"line {line:,}"
    head = f"{subscription.id} {verdict} {which}, at revision {data['revision']}"
    lines = [head if data["matched"] else f"{head}: {printable(data['reason'], SHOWN)}"]
    topic = data.get("topic")
    if topic:
        fits = "matches" if topic["matches"] else "does not match"
        shown = "no topic" if message.topic is None else printable(message.topic)
        lines.append(f"  topic filter {printable(topic['filter'])} {fits} {shown}")
    lines += [f"  {printable(step['text'], SHOWN)}" for step in data.get("access", ())]
    if subscription.seltype != EXTENDED:
        tree = Selector(subscription.selector, subscription.dialect, limits=UNLIMITED).explain(message)
        lines += [f"  {part}" for part in str(tree).splitlines()]
    return "\n".join(lines)


# ---- subscriptions as text and data

_ROW: Final = "{:<26}  {:<6}  {:>8}  {:<24}  {}"
"""Line of a list outside a terminal: id, status, revision, topic filter, selector."""

_HEADING: Final = ("id", "status", "revision", "topic", "selector")


def as_data(subscription: Subscription, batches: Iterable[EffectiveFrom] | None) -> dict[str, Any]:
    """Return the fields of a subscription, and if given the batches from which on it is effective."""
    data = subscription.to_json()
    if batches is not None:
        data["effective_from"] = [asdict(batch) for batch in batches]
    return data


def paragraph(subscription: Subscription, batches: Iterable[EffectiveFrom] | None, past: bool = False) -> str:
    """Return the fields of a subscription, one per line."""
    state = "removed" if past else f"{subscription.status.value}, revision {subscription.revision}"
    named = "" if subscription.name == subscription.id else f" ({printable(subscription.name)})"
    destination = ":".join(filter(None, (subscription.destination.kind, subscription.destination.name)))
    topic = "every topic" if subscription.topic is None else printable(subscription.topic, SHOWN)
    lines = [
        f"{subscription.id}{named}: {state}",
        f"  topic         {topic}",
        f"  selector      {printable(subscription.selector, SHOWN) or 'every message'}",
        f"  dialect       {subscription.dialect}{', EXTENDED' if subscription.seltype == 'EXTENDED' else ''}",
        f"  destination   {destination}",
    ]
    labels = subscription.labels.items()
    lines += [f"  label         {printable(name)}={printable(text)}" for name, text in labels]
    lines += [
        f"  created       {subscription.created:%Y-%m-%d %H:%M:%S} UTC",
        f"  modified      {subscription.modified:%Y-%m-%d %H:%M:%S} UTC",
    ]
    if batches is not None:
        texts = [f"batch {batch.batch} of query {printable(batch.query)}" for batch in batches]
        lines += [f"  effective from {batch}" for batch in texts] or ["  effective from no batch yet"]
    return "\n".join(lines)


def print_rows(page: Sequence[Subscription], with_heading: bool) -> None:
    """Print subscriptions: on a terminal as a table of its width, to a file or pipe one per line."""
    rows = [
        (
            subscription.id,
            subscription.status.value,
            str(subscription.revision),
            "" if subscription.topic is None else printable(subscription.topic, SHOWN),
            printable(subscription.selector, SHOWN),
        )
        for subscription in page
    ]
    if sys.stdout is not None and sys.stdout.isatty():
        print_table(_HEADING, rows, uncut=("id", "status", "revision"))
        return
    for row in [_HEADING, *rows] if with_heading else rows:
        print(_ROW.format(*row).rstrip())
