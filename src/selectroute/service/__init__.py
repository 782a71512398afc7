"""The registry and queues over HTTP: FastAPI and uvicorn around a `Registry`, its publisher and `SqlQueues`.

::

    request → gate (token, rate, size) → call (role, strict JSON) → registry ──────────→ answer, or a problem
                                                         commit ──→ publishing ─→ snapshot folder ─→ streams
                                                              └──→ watch ─→ requests that wait for changes

``app`` makes the application of the calls in ``subscriptions`` (one), ``bulk`` (many), ``changes``,
``messages`` (what matches and why), ``tokens`` and ``system``; ``server`` lets a process serve it.
``callers`` says who asks and what he may touch: without tokens anybody on this machine, otherwise a token
with a role and topic filters; what it may not see does not exist for it. ``problems`` has every way to be
refused in one table, ``refusals`` says which one an error of the parts below is, ``limits`` how much a
request may hold. ``matching`` asks the published snapshot's kernel about one message, and the reference
evaluator why, and holds them to each other.

``queues`` makes and deletes queues, and ``queue_messages`` puts, browses, gets and lists their messages in
the shape of IBM MQ's messaging REST API v3. ``queue_waiting`` is who waits for a message, each an event and
no thread; ``connected`` tells of a client that has hung up, whose message stays where it is.
"""
