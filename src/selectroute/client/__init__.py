"""Client of a service: what a registry and its queues do in a database, over HTTP.

::

    connect(url) ─→ RemoteRegistry ─→ queues() ─→ RemoteQueues ─→ RemoteQueue
                          └───────────────────────────┴─→ HttpClient: retries, time limits, bounded answers
                                                          problems: an answer back to the error it stands for

`connect` (`selectroute.connect`) is the public door. A `RemoteRegistry` is a
`registry.protocol.SubscriptionRegistry` as `Registry` is; ``registry/`` knows nothing of this folder.
"""
