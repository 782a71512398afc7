"""Random changes of subscriptions, and what they must come to: shared by the tests of deltas and merges.

The oracle is a dict of the live subscriptions, each judged by the reference evaluator. It knows neither
segments nor tombstones nor ordinals.
"""

from __future__ import annotations

from random import Random

import selectroute as sr
from selectroute.arrays.state import SnapshotState
from selectroute.index.changes import Add, Change, Remove, Replace
from selectroute.match.columns.from_messages import from_messages
from selectroute.match.match import match
from selectroute.topics import TopicFilter

SELECTORS = (
    "",
    "JMSType = 't{n}' AND weight > {m}",
    "JMSType = 't{n}' AND color = 'c{n}' AND weight <= {m}",
    "color IN ('c1', 'c{n}') OR weight = {m}",
    "weight BETWEEN {n} AND {m}",
    "color LIKE 'c%{n}' AND NOT (JMSType = 't1')",
    "color IS NULL AND weight < {m}.5",
    "weight * 2 > {m} OR urgent",
)
TOPICS = (None, None, "a/+", "#/b", "a")


def selector(chance: Random) -> str:
    return chance.choice(SELECTORS).format(n=chance.randrange(4), m=chance.randrange(60))


def random_changes(chance: Random, live: dict[str, tuple[str, str | None]], count: int) -> list[Change]:
    """Valid changes, in order; `live` is changed along. An id may come several times."""
    changes: list[Change] = []
    for _ in range(count):
        id, text, topic = f"s{chance.randrange(60)}", selector(chance), chance.choice(TOPICS)
        if id not in live:
            changes.append(Add(id, text, topic))
            live[id] = (text, topic)
        elif chance.random() < 0.4:
            changes.append(Remove(id))
            del live[id]
        elif chance.random() < 0.5:
            changes.append(Replace(id, text))
            live[id] = (text, live[id][1])
        else:
            changes.append(Replace(id, text, topic))
            live[id] = (text, topic)
    return changes


def random_messages(chance: Random, count: int) -> list[sr.Message]:
    return [
        sr.Message(
            headers={"JMSType": f"t{chance.randrange(4)}"},
            properties={
                "color": chance.choice([None, "c1", "c2", "c33"]),
                "weight": chance.choice([None, chance.randrange(60), sr.Float(chance.randrange(60)), "7"]),
                "urgent": chance.choice([True, False, None]),
            },
            topic=chance.choice([None, "a", "a/b", "x/b"]),
        )
        for _ in range(count)
    ]


def expected(live: dict[str, tuple[str, str | None]], message: sr.Message) -> list[str]:
    return sorted(
        id
        for id, (text, topic) in live.items()
        if (topic is None or TopicFilter.parse(topic).matches(message.topic))
        and sr.Selector(text).matches(message)
    )


def found(snapshot: SnapshotState, messages: list[sr.Message]) -> list[list[str]]:
    """The ids that the kernel finds, sorted; a subscription that is found twice stands there twice."""
    matches = match(snapshot, from_messages(messages, snapshot.reads))
    return [sorted(snapshot.ids.take(row).to_pylist()) for row in matches]


def live_ids(snapshot: sr.Snapshot) -> list[str]:
    dead = snapshot.dead
    return sorted(id for n, id in enumerate(snapshot.ids.to_pylist()) if dead is None or not dead[n])
