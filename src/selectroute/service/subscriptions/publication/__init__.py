"""Publication of changes: the way of a change from its request to the batch that uses it.

::

    request ──→ registry ──publishing──→ snapshots ──→ streams ──batch_waiting──→ waiting request

``publishing`` has the thread that publishes what is committed, and the one that wakes requests for changes.
``batch_waiting`` wakes requests when a batch has used their revision.

The service's context owns one of each; calls reach them through it.
"""
