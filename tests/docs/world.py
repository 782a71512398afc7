"""Folder as the pages have it: messages, and subscriptions in a file, a snapshot folder and a registry."""

from __future__ import annotations

import json
from pathlib import Path

import selectroute as sr

HEAVY = "JMSType = 'car' AND weight > 2500"
LIMIT = "1000"
"""Bytes of a message for the job of this folder; one of its messages has more."""


OF_A_JOB = {"SELECTROUTE_AVAILABLE_NOW": "1", "SELECTROUTE_MAX_MESSAGE_BYTES": LIMIT}
"""Variables with which a job of this folder routes what is there, and ends."""


def message(weight: int, color: str = "blue") -> str:
    """Return a message as a line of JSON."""
    properties = {"weight": weight, "color": color}
    return json.dumps({"topic": "cars/eu", "headers": {"JMSType": "car"}, "properties": properties})


def fill(folder: Path) -> None:
    """Write all of it."""
    _write_messages(folder)
    _publish_subscriptions(folder)


def _write_messages(folder: Path) -> None:
    """Write files of messages for a job, a file of messages for commands, and one with a single message."""
    files = {
        "monday.jsonl": [message(2000), message(2700), message(3000)],
        "a.jsonl": [message(10), message(3000)],
        "1.jsonl": [*[message(10)] * 7, message(10, "red")],
        "bad.jsonl": ["no message", message(3000, "x" * int(LIMIT))],
    }
    (folder / "messages").mkdir()
    for name, of_file in files.items():
        (folder / "messages" / name).write_text("".join(f"{line}\n" for line in of_file))
    (folder / "messages.jsonl").write_text(f"{message(10)}\n{message(3000)}\n")
    (folder / "message.json").write_text(message(3000))


def _publish_subscriptions(folder: Path) -> None:
    """Write the subscriptions `heavy`, `a` and `untyped` into a file, a snapshot folder and a registry, which
    publishes them, too. In the registry the revision of `heavy` is 17.
    """
    from selectroute.registry.publisher import RegistryPublisher

    rows = [("heavy", HEAVY, "cars/+"), ("a", "color = 'red'"), ("untyped", "JMSType IS NULL", "cars/#")]
    named = [dict(zip(("id", "selector", "topic"), row, strict=False)) for row in rows]
    (folder / "subscriptions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in named))
    sr.publish(sr.build_snapshot(rows), folder / "snapshots")
    with sr.Registry.open(f"sqlite:///{folder}/subscriptions.db") as registry:
        registry.import_([json.dumps(row).encode() for row in named])
        while registry.revision < 16:
            registry.skip_revision()
        registry.replace("heavy", sr.SubscriptionSpec(selector=HEAVY, topic="cars/+", name="invoices"))
        assert registry.get("heavy").revision == 17
        with RegistryPublisher(registry) as publisher:
            publisher.catch_up()
