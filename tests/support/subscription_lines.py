"""Subscriptions in lines of JSON, as `index build` reads them, without a snapshot of them."""

from selectroute.index.errors import InvalidLinesError
from selectroute.index.jsonl import Reading


def read_subscriptions(lines, revision=None, progress=lambda _: None):
    reading = Reading(revision)
    reading.read(lines, progress)
    if reading.problems:
        raise InvalidLinesError(reading.problems, reading.wrong)
    return reading.subscriptions()
