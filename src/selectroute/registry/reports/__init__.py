"""Reports of streams to the registry: the revisions that their batches used, their state, and messages seen.

``queries`` records each query, and which of its batches used which revision: from there on a change holds.
``reports`` has the newest batches of each stream for operators, and the activity of subscriptions.
``samples`` has recent messages, to try a change on. The last two are only looked at, and may be lost.

Their rows have no digests. Only `Registry` calls them with a connection; a service reads their types and
limits.
"""
