"""``selectroute subscription explain``: why a subscription gets a message, or does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selectroute.cli.connect import Connection, RegistryOption, connected
from selectroute.cli.inputs import MessagesArgument, SkipOption, answering
from selectroute.cli.output import Output, OutputOption
from selectroute.cli.subscription import app
from selectroute.selector import Message, Selector
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.sentences import printable

if TYPE_CHECKING:
    from selectroute.registry.model import Subscription


@app.command()
def explain(
    id: Annotated[str, typer.Argument(metavar="ID", help="The subscription's id.", show_default=False)],
    messages: MessagesArgument,
    output: OutputOption = Output.table,
    skip_bad: SkipOption = False,
    registry: RegistryOption = None,
) -> None:
    """Say why a subscription gets messages or does not, by the matcher that delivers them.

    selectroute subscription explain heavy '{"topic": "cars/eu", "properties": {"weight": "3000"}}'

    The subscription is taken as it is now: what was delivered before is judged by the revision of its batch.
    """
    with connected(registry) as connection, answering(messages, skip_bad, output) as (found, add):
        one = connection.get(id)
        for given in found:
            data = _explained(connection, one, given.message)
            line = {} if given.line is None else {"line": given.line}
            add(
                as_text(one, given.message, data, given.line)
                if output is Output.table
                else as_json_text(line, data)
            )


def _explained(connection: Connection, one: Subscription, message: Message) -> dict[str, Any]:
    """What a service answers: from a service, or the same made here of the database's subscription."""
    from selectroute.index.index import Index
    from selectroute.registry.model import Status
    from selectroute.registry.remote import RemoteRegistry
    from selectroute.service.matching import explained, judged

    if isinstance(connection, RemoteRegistry):
        return connection.explain(one.id, message)
    if one.status is Status.PAUSED:
        return {"revision": one.revision, "id": one.id, "matched": False, "reason": "it is paused"}
    index = Index()
    extended = one.seltype == "EXTENDED"
    given: Any = one.selector if extended else Selector(one.selector, one.dialect, limits=UNLIMITED)
    index.add(one.id, given, one.topic, dialect=one.dialect, extended=extended)
    snapshot = index.freeze()
    return {"revision": one.revision, **explained(snapshot, 0, message, judged(snapshot, message))}


def as_json_text(line: dict[str, int], data: dict[str, Any]) -> str:
    """The answer on a line. A tree that was made here may be too deep for ``json.dumps``."""
    tree = data.get("selector")
    if tree is None or isinstance(tree, dict):
        return json.dumps({**line, **data})
    head = json.dumps({**line, **{name: value for name, value in data.items() if name != "selector"}})
    return f'{head[:-1]}, "selector": {tree.to_json()}}}'


def as_text(one: Subscription, message: Message, data: dict[str, Any], line: int | None) -> str:
    """Return the answer for people: the verdict, the way to it, the tree of the selector."""
    verdict = "gets" if data["matched"] else "does not get"
    which = "the message" if line is None else f"line {line:,}"
    head = f"{one.id} {verdict} {which}, at revision {data['revision']}"
    lines = [head if data["matched"] else f"{head}: {printable(data['reason'], 2_000)}"]
    topic = data.get("topic")
    if topic:
        fits = "matches" if topic["matches"] else "does not match"
        shown = "no topic" if message.topic is None else printable(message.topic)
        lines.append(f"  topic filter {printable(topic['filter'])} {fits} {shown}")
    lines += [f"  {printable(step['text'], 2_000)}" for step in data.get("access", ())]
    if one.seltype != "EXTENDED":
        tree = Selector(one.selector, one.dialect, limits=UNLIMITED).explain(message)
        lines += [f"  {part}" for part in str(tree).splitlines()]
    return "\n".join(lines)
