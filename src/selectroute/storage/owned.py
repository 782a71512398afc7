"""Folder of which one process is the only writer, so that what is in it is known without asking.

A job reads its own commits and pins again and again, mostly to learn that there is none yet. In remote
storage each of these questions is a round trip. The owner of a folder (see ``lease``) lists it once, and from
then on knows its files by what it writes itself.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from selectroute.storage.location import Location
from selectroute.storage.protocol import Entry, WrappedStorage

_REMEMBERED: Final = 1_000
"""Files whose content is remembered: those used last."""


@dataclass(frozen=True, slots=True)
class OwnedStorage(WrappedStorage):
    """Storage with folders that only this process writes; see `Storage`. Thread-safe.

    Attributes:
        owned: the keys of these folders. Files outside of them are passed through.
    """

    owned: tuple[str, ...]
    _entries: dict[str, Entry] = field(default_factory=dict, compare=False, repr=False)
    _content: OrderedDict[str, bytes] = field(default_factory=OrderedDict, compare=False, repr=False)
    _listed: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)
    _guard: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    def begin(self) -> None:
        """List the folders; before it, every question is passed on."""
        self._entries.clear()
        self._content.clear()
        for folder in self.owned:
            for entry in self.storage.entries(folder, deep=True):
                self._entries[entry.key] = entry
        self._listed.set()

    def read(self, key: str) -> bytes:
        """Return a file, without a request if it is known."""
        if not self._owns(key):
            return self.storage.read(key)
        with self._guard:
            if key not in self._entries:
                raise FileNotFoundError(2, "no such file", self.url(key))
            data = self._content.get(key)
        if data is None:
            data = self.storage.read(key)
            self._remember(key, data)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Write a file."""
        self.storage.put(key, data)
        self._wrote(key, data)

    def put_new(self, key: str, data: bytes) -> None:
        """Write a file that does not exist."""
        try:
            self.storage.put_new(key, data)
        except FileExistsError:
            entry = self.storage.entry(key)  # another process wrote it
            if entry is not None and self._owns(key):
                with self._guard:
                    self._entries[key] = entry
                    self._content.pop(key, None)
            raise
        self._wrote(key, data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace a version of a file."""
        newer = self.storage.replace(key, data, version)
        self._wrote(key, data)
        return newer

    def entries(self, folder: str, *, deep: bool = False) -> Iterator[Entry]:
        """Yield the files in a folder."""
        if not self._owns(folder):
            yield from self.storage.entries(folder, deep=deep)
            return
        start = f"{folder}/"
        with self._guard:
            entries = [entry for key, entry in self._entries.items() if key.startswith(start)]
        for entry in sorted(entries):
            if deep or "/" not in entry.key[len(start) :]:
                yield entry

    def folders(self, folder: str) -> list[str]:
        """Return the names of the sub-folders."""
        if not self._owns(folder):
            return self.storage.folders(folder)
        start = f"{folder}/"
        with self._guard:
            rests = [key[len(start) :] for key in self._entries if key.startswith(start)]
        return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

    def entry(self, key: str) -> Entry | None:
        """Return the entry of a file."""
        if not self._owns(key):
            return self.storage.entry(key)
        with self._guard:
            return self._entries.get(key)

    def delete(self, key: str) -> None:
        """Delete a file; one that is known not to exist takes no request."""
        if self._owns(key) and key not in self._entries:
            return
        self.storage.delete(key)
        self._forget(key)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder; one that is known to be empty takes no request."""
        if self._owns(folder):
            known = [entry.key for entry in self.entries(folder, deep=True)]
            if not known:
                return
        else:
            known = []
        self.storage.delete_folder(folder)
        for key in known:
            self._forget(key)

    def upload(self, path: Path, key: str) -> None:
        """Write a file of this machine."""
        self.storage.upload(path, key)
        if self._owns(key):
            with self._guard:
                self._entries[key] = Entry(key, path.stat().st_size, time.time())
                self._content.pop(key, None)

    def _owns(self, key: str) -> bool:
        return self._listed.is_set() and any(
            key == folder or key.startswith(f"{folder}/") for folder in self.owned
        )

    def _wrote(self, key: str, data: bytes) -> None:
        if not self._owns(key):
            return
        with self._guard:
            self._entries[key] = Entry(key, len(data), time.time())
        self._remember(key, data)

    def _remember(self, key: str, data: bytes) -> None:
        with self._guard:
            self._content[key] = data
            self._content.move_to_end(key)
            while len(self._content) > _REMEMBERED:
                self._content.popitem(last=False)

    def _forget(self, key: str) -> None:
        with self._guard:
            self._entries.pop(key, None)
            self._content.pop(key, None)


def owned(folder: Location, *names: str) -> Location:
    """Return the same location, of which these sub-folders are known; a local one is returned unchanged."""
    if folder.is_local:
        return folder
    return Location(OwnedStorage(folder.storage, tuple((folder / name).key for name in names)), folder.key)


def shared(folder: Location) -> Location:
    """Return the same location, in which other processes write, too: it is asked for what is in it."""
    storage = folder.storage
    return Location(storage.storage, folder.key) if isinstance(storage, OwnedStorage) else folder


def begin(folder: Location) -> None:
    """List the folders of a location that `owned` returned: from now on this process is their only writer."""
    if isinstance(folder.storage, OwnedStorage):
        folder.storage.begin()
