"""The registry over HTTP: FastAPI and uvicorn around a `Registry` and its publisher.

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
"""
