"""Registry: subscriptions that outlive the process, every change to them in order, and snapshots made of it.

**Change.** `Registry.register`, ``replace``, ``remove``, ``pause`` and ``resume`` are one transaction each,
and one *revision* (``log.revision``): checked (``specification``), written to the change log, put into the
tables that are its view (``log.tables``). ``apply`` and ``import_`` (``bulk``) make one revision of many
changes. A repeated request gets the answer of the first one (``log.idempotency``).

**Read.** ``get`` and ``list`` (``pages``) read the view, ``changes`` reads the log (``log.change_log``). Each
row carries a digest that is checked when it is read (``log.rows``), each change vouches for all before it,
and ``verify`` reads everything.

**Lose nothing.** In SQLite a revision is durable when its call returns. Its number and its digest are then
noted in ``DATABASE.head``, one small synced write (``store.head``), so that a database which lost its end, by
a damaged log, a missing file or an older copy in its place, is refused when it is opened. Not noticed is the
loss of what is no revision (tokens, notes of queries, keys of requests) and came after the newest one, nor
anything where the head is missing as well: copies of the database alone have none. Who copies both copies
the head first. PostgreSQL has no head; what it acknowledged is its own to keep.

**Publish.** `RegistryPublisher` (``publisher``) makes of what is committed the next revision of a snapshot
folder, from which streams route. They report back which batch was the first to use a revision (``queries``),
so that a client is told from where on its change holds. ``tokens`` say who may call a service.

``protocol`` has what a registry behind a service can do as well; that one is in ``client/``.
"""
