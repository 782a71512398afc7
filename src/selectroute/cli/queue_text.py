"""Queues and their messages as text for people, and as data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from selectroute.cli.output import print_table
from selectroute.selector.sentences import counted, printable

if TYPE_CHECKING:
    from selectroute.queues.bulk import Stayed
    from selectroute.queues.message.message import QueuedMessage
    from selectroute.queues.settings import QueueDescription

_HEADING: Final = ("message id", "correlation id", "priority", "put (UTC)", "properties")

_SHOWN: Final = 200


def paragraph(queue: QueueDescription) -> str:
    """Return the properties of a queue, one per line."""
    return "\n".join(
        (
            f"{queue.name}: {counted(queue.depth, 'message')}",
            f"  order         {queue.order}",
            f"  priority      {queue.default_priority}, of messages without one",
            f"  persistent    {'yes' if queue.default_persistence else 'no'}, of messages that do not say",
            f"  depth         {'any' if queue.max_depth is None else f'{queue.max_depth:,}'}",
            f"  bytes         {queue.max_message_length:,} in a body",
            f"  dialect       {queue.dialect}",
        )
    )


def description_data(queue: QueueDescription) -> dict[str, Any]:
    """Return the description of a queue as plain data."""
    from selectroute.registry.model import plain

    return {"name": queue.name, **plain(queue)}


def stayed_sentences(stayed: Stayed) -> Iterator[str]:
    """Yield a sentence for each reason for which messages stayed on their queue."""
    reasons = (
        (stayed.full, "the other queue is full"),
        (stayed.too_long, "the other queue does not take bodies of this length"),
        (stayed.in_use, "others got them in the meantime, or were getting them"),
    )
    for number, reason in reasons:
        if number:
            yield f"{counted(number, 'message')} stayed: {reason}"


def print_messages(messages: Sequence[QueuedMessage]) -> None:
    """Print messages as a table, or as lines if the terminal is too narrow."""
    if messages:
        columns = zip(*map(_cells, messages), strict=True)
        print_table(dict(zip(_HEADING, columns, strict=True)), uncut=("message id", "priority", "put (UTC)"))


def _cells(message: QueuedMessage) -> tuple[str, ...]:
    """Return the texts of a message in a table, in the order of its heading."""
    from selectroute.selector.fields import NO_ID, id_to_text

    descriptor, properties = message.descriptor, dict(message.properties)
    text = properties.pop("JMSCorrelationID", None)
    if not isinstance(text, str):
        text = "" if descriptor.correl_id == NO_ID else (id_to_text(descriptor.correl_id) or "")
    shown = ", ".join(f"{name}={value_text(value)}" for name, value in properties.items())
    put = f"{descriptor.put_time:%Y-%m-%d %H:%M:%S.%f}"[:-3]
    return (
        id_to_text(descriptor.msg_id) or "",
        printable(text),
        str(descriptor.priority),
        put,
        printable(shown, _SHOWN),
    )


def as_data(message: QueuedMessage, *, body: bool) -> dict[str, Any]:
    """Return a message as plain data, with `body` also its body: a text if it is UTF-8."""
    from selectroute.queues.rest.lookup import item_of

    data = item_of(message)
    if not body:
        return data
    try:
        return {**data, "body": message.body.decode()}
    except UnicodeDecodeError:
        return {**data, "body": {"type": "bytes", "value": message.body.hex()}}


def write_body(body: bytes) -> None:
    """Write a body to standard output unchanged; on a terminal, with a final line feed."""
    sys.stdout.flush()
    sys.stdout.buffer.write(body)
    if sys.stdout.isatty() and body and not body.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def value_text(value: Any) -> str:
    """Return a value of a property as a text."""
    return str(getattr(value, "value", value))
