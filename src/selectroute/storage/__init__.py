"""Folders wherever they are: on a mounted file system, in an object store, or on HDFS.

``location`` has `Location`, a file or folder by its URL; ``protocol`` the few verbs to read and write
with, `Storage`, which ``local``, ``objects`` and ``hdfs`` implement. ``cache`` keeps files of remote
storage on the local disk. ``patient`` storage is waited for, ``owned`` is known
without asking, and a ``lease`` is a lock where storage has none.

::

    Location.of("s3://bucket/out") / "_commits" / "7.json"
        .read()  .put(data)  .put_new(data)  .replace(data, version)  .entries()  .delete()

Imports `durable`, `extras` and `selector` only; the clients of object stores and of HDFS (extra ``storage``)
are imported when a URL needs them.
"""

from selectroute.storage.location import Location
from selectroute.storage.protocol import (
    ChangedError,
    DeniedError,
    Entry,
    Storage,
    StorageError,
    UnknownSchemeError,
    UnreachableError,
)

__all__ = [
    "ChangedError",
    "DeniedError",
    "Entry",
    "Location",
    "Storage",
    "StorageError",
    "UnknownSchemeError",
    "UnreachableError",
]
