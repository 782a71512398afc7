"""Client of a service: the methods of a registry and its queues, over HTTP.

::

    connect(url) ─→ RemoteRegistry ─→ queues() ─→ RemoteQueues ─→ RemoteQueue
                          └───────────────────────────┴─→ HttpClient: retries, timeouts, bounded responses
                                                          problems: an error response as an exception

`connect` (`selectroute.connect`) is the public entry point. `RemoteRegistry` implements
`registry.protocol.SubscriptionRegistry`, as `Registry` does; ``registry/`` does not depend on this folder.
"""
