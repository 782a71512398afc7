"""Registry: persistent subscriptions, an ordered log of their changes, and snapshots built from it.

**Change.** `Registry.register`, ``replace``, ``remove``, ``pause`` and ``resume`` are one *revision* each
(``log.revision``): checked (``specification``), appended to the change log, applied to the tables that are
its view (``log.tables``). Revisions that wait for a commit at the same time are one transaction
(``log.group_commit``). ``apply`` and ``import_`` (``bulk``) make one revision of many changes. A repeated
request gets the response of the first one (``log.idempotency``).

**Read.** ``get`` and ``list`` (``pages``) read the view, ``changes`` reads the log (``log.change_log``). Each
row carries a digest that is checked on every read (``log.rows``), the digest of a change covers all earlier
changes, and ``verify`` reads everything; ``verification`` does so beside a service.

**Lose nothing.** In SQLite a revision is durable when its call returns. Its number and digest are then
recorded in ``DATABASE.head``, one small synced write (``store.head``). Opening refuses a database that lost
its newest revisions by a damaged log, a missing file or an older copy in its place. Not detected: the loss of
rows that belong to no revision (tokens, reports of queries, idempotency keys) and are newer than the last
one, and any loss without a head, as in a copy of the database file alone. To copy both files, copy the head
first. PostgreSQL has no head: its own durability applies.

**Publish.** `RegistryPublisher` (``publisher``) publishes committed changes as the next revision of a
snapshot folder, from which streams route; of several processes one does. Streams report the first batch that
used a revision (``reports``), so that a client knows from which batch on its change holds. Tokens authorize
callers of a service (``authorization``).

``protocol`` has the methods that are also available over HTTP, implemented in ``client/``.
"""
