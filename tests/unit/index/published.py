"""A small registry to publish, and messages for it: shared by the tests of what is written to a folder."""

import pyarrow as pa

import selectroute as sr

MESSAGES = pa.record_batch(
    {"JMSType": ["car", "bus", None], "weight": pa.array([3000, 10, None], pa.int32())}
)


def small(revision=None):
    """Four subscriptions: found by a key, scanned, in parts of every kind, by topic."""
    index = sr.Index()
    index.add("heavy", "JMSType = 'car' AND weight > 2500")
    index.add("light", "weight < 100 AND NOT (JMSType = 'car')")
    index.add("parts", "weight + 1 > 2 OR JMSType LIKE 'b_s' OR JMSType IN ('car', 'bus') OR weight = 10")
    index.add("topic", topic="a/#/b/#")
    return index.freeze(revision)


def pairs(snapshot):
    """The ordinals that each of the messages goes to, sorted."""
    return [sorted(row.tolist()) for row in snapshot.match(MESSAGES)]
