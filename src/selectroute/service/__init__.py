"""HTTP service of a registry and its queues: Starlette and uvicorn around `Registry` and `SqlQueues`.

::

    request → middleware (token, rate, size) → call (role, strict JSON) → registry → response or problem
                                                       commit ──→ publishing ─→ snapshots ─→ streams
                                                            └──→ watch ─→ waiting requests

``calls`` is the table of all calls, by which ``app`` answers requests; their functions are in
``subscriptions``, ``queues``, ``jobs`` and ``system``. ``server`` runs it in a process. ``http.callers``
authenticates the caller: without tokens any process on this machine, otherwise a token with a role and topic
filters; a subscription outside these filters is reported as missing. ``http.problems`` is the table of all
problem types and maps errors of the lower layers to these, ``limits`` bounds the size of requests.
``index.match_report`` matches one message by the kernel of the published snapshot, explains the result by the
reference evaluator, and compares both.

``queues.administration`` creates and deletes queues, ``queues.messages`` puts, browses, gets and lists their
messages as IBM MQ's messaging REST API v3 does. ``queues.waiting`` has the requests that wait for a message,
each with an event instead of a thread; ``context`` detects a disconnected client, whose message stays on the
queue.
"""
