"""Client of a service: the methods of a registry and its queues, over HTTP.

::

    connect(url) ─→ RemoteRegistry ─→ queues() ─→ RemoteQueues ─→ RemoteQueue
                          └───────────────────────────┴─→ HttpClient: retries, timeouts, bounded responses
                                                          problems: an error response as an exception

`connect` (`selectroute.connect`) is the public entry point. `RemoteRegistry` has the methods of `Registry`
that do not need the database itself (``any_registry``); ``registry/`` does not depend on this folder.
"""
