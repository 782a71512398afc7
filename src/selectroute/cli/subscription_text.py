"""Subscriptions as text: a paragraph, a line of a list, or data."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from selectroute.cli.output import print_table
from selectroute.selector.sentences import printable

if TYPE_CHECKING:
    from selectroute.registry.changes import EffectiveFrom
    from selectroute.registry.model import Subscription

_SHOWN: Final = 2_000
"""Characters of a selector in a table at most; -o json has all of it."""

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
    destination = subscription.destination.kind + (
        f":{subscription.destination.name}" if subscription.destination.name else ""
    )
    topic = "every topic" if subscription.topic is None else printable(subscription.topic, _SHOWN)
    lines = [
        f"{subscription.id}{named}: {state}",
        f"  topic         {topic}",
        f"  selector      {printable(subscription.selector, _SHOWN) or 'every message'}",
        f"  dialect       {subscription.dialect}{', EXTENDED' if subscription.seltype == 'EXTENDED' else ''}",
        f"  destination   {destination}",
    ]
    lines += [
        f"  label         {printable(name)}={printable(text)}" for name, text in subscription.labels.items()
    ]
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
            "" if subscription.topic is None else printable(subscription.topic, _SHOWN),
            printable(subscription.selector, _SHOWN),
        )
        for subscription in page
    ]
    if sys.stdout is not None and sys.stdout.isatty():
        columns = dict(zip(_HEADING, zip(*rows, strict=True), strict=True))
        print_table(columns, uncut=("id", "status", "revision"))
        return
    for row in [_HEADING, *rows] if with_heading else rows:
        print(_ROW.format(*row).rstrip())


def as_line(subscription: Subscription) -> str:
    """Return a subscription as one line of JSON."""
    return json.dumps(subscription.to_json())
