"""Registry and queues over HTTP: FastAPI and uvicorn around a `Registry`, its publisher and `SqlQueues`.

::

    request → middleware (token, rate, size) → endpoint (role, strict JSON) → registry → answer, or a problem
                                                           commit ──→ publishing ─→ snapshots ─→ streams
                                                                └──→ watch ─→ requests that wait

``app`` makes the application of the calls in ``subscriptions`` (one), ``bulk`` (many), ``changes``,
``messages`` (what matches and why), ``tokens`` and ``system``; ``server`` lets a process serve it.
``http.callers`` finds the caller and the permission: without tokens anybody on this machine, otherwise a
token with a role and topic filters; what it may not see does not exist for it. ``http.problems`` has every
way to be refused in one table, ``http.error_mapping`` says which one an error of the parts below is,
``limits`` how much a request may hold. ``index.verdicts`` asks the published snapshot's kernel about one
message, and the reference evaluator why, and holds them to each other.

``queues.administration`` makes and deletes queues, ``queues.messages`` puts, browses, gets and lists their
messages in the shape of IBM MQ's messaging REST API v3. ``queues.waiting`` has those who wait for a message,
each an event and no thread; ``http.disconnect`` tells of a client that has hung up, whose message stays where
it is.
"""
