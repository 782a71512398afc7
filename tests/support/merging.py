"""A snapshot with all of its segments merged."""

from selectroute.index.changes import merged, merged_part


def merge(snapshot, revision=None):
    return merged(snapshot, 0, merged_part(snapshot, 0), revision)
