"""Registry: persistent subscriptions, an ordered log of their changes, and snapshots built from it.

**Change.** `Registry.register`, ``replace``, ``remove``, ``pause`` and ``resume`` are one *revision* each
(``log.revision``): checked (``specification``), appended to the change log, applied to the tables that are
its view (``log.tables``). Revisions that wait for a commit at the same time are one transaction
(``log.group_commit``). ``apply`` and ``import_`` (``bulk``) make one revision of many changes. A repeated
request gets the response of the first one (``log.revision``).

**Read.** ``get`` and ``list`` read the view, ``changes`` reads the log (``log.change_log``). Each
row carries a digest that is checked on every read (``log.rows``), the digest of a change covers all earlier
changes, and ``verify`` reads everything.

**Lose nothing.** A revision is durable when its call returns: SQLite syncs its log at each commit
(``synchronous=FULL``), PostgreSQL by its own settings. What a disk loses afterwards is not always noticed: a
database without its newest revisions is a sound, older one. Publication notices it, because a snapshot folder
has the digest of the log up to its newest revision (``publisher``).

**Publish.** `RegistryPublisher` (``publisher``) publishes committed changes as the next revision of a
snapshot folder, from which streams route; of several processes one does. Streams report the first batch that
used a revision (``reports``), so that a client knows from which batch on its change holds. Tokens authorize
callers of a service (``authorization``).

Most methods are also available over HTTP, by ``client/``.
"""
