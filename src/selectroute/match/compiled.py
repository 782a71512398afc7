"""Compiler of the kernel, with its cache in a directory that only this user can write.

numba executes the machine code in its cache unchecked. So no other user may write there: the cache is in an
own directory of mode 0700, in the user's cache directory or else in the system's temporary directory. Without
either, nothing is cached and each process compiles. Of a chosen cache that can only be read, as in an image,
that directory has a copy.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, TypeVar

import numba
from numba.core import event

from selectroute.durable.lock import FileLock
from selectroute.durable.private_folder import CLOSED, private_folders

_LOGGER = logging.getLogger("selectroute")
_KERNEL: Final = "selectroute.match."
"""Prefix of the modules whose functions take long to compile."""

ROOMS: Final = ("arrays", "clauses", "match", "kafka/batches")
"""Packages whose constants and functions are compiled into each other: any change is a new version."""

_Function = TypeVar("_Function", bound=Callable[..., object])


def _cache() -> str | None:
    """Return the cache of this version of the code: numba notices changes only in a function's own file."""
    sources = [path for room in ROOMS for path in sorted((Path(__file__).parents[1] / room).rglob("*.py"))]
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    name = f"kernel-{version}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")  # the user's own choice and responsibility
    kept = Path(chosen) / name if chosen else None
    if kept is not None and _is_writable(kept):
        return str(kept)
    own = next(private_folders(CLOSED), None)
    if own is None:
        return None
    return str(own / name if kept is None else _copied(kept, own / name))


def _is_writable(folder: Path) -> bool:
    """Return whether a folder, which is created if it is missing, can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _copied(kept: Path, to: Path) -> Path:
    """Return a private copy of a cache that can only be read, as in an image: numba refuses such a one."""
    if kept.is_dir() and not to.exists():
        half = to.with_name(f"{to.name}.{os.getpid()}")
        for path in kept.rglob("*"):
            if path.is_file():
                target = half / path.relative_to(kept)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        try:
            half.rename(to)
        except OSError:  # another process was faster
            shutil.rmtree(half, ignore_errors=True)
    return to


_CACHE = _cache()
if _CACHE is not None:
    numba.config.CACHE_DIR = _CACHE


def compiled(function: _Function) -> _Function:
    """Compile a function of the kernel: no Python objects, IEEE 754 floats, the GIL released."""
    dispatcher: _Function = numba.njit(cache=_CACHE is not None, nogil=True, error_model="numpy")(function)
    return dispatcher


def inlined(function: _Function) -> _Function:
    """Compile a function into its caller: a call with all tables as arguments costs more than most bodies."""
    options = {"nogil": True, "error_model": "numpy", "forceinline": True}
    dispatcher: _Function = numba.njit(cache=_CACHE is not None, **options)(function)
    return dispatcher


KERNEL: Final = "the matching kernel"
_UNLOCKED: Final = nullcontext()
_loaded: set[str] = set()
_REMINDER: Final = 15.0
"""Seconds after which a process says again what it waits for."""


def compiling_alone(what: str = KERNEL) -> AbstractContextManager[None]:
    """Return a context for the first call of compiled code in this process: of all processes of a user one
    compiles, the others wait and load the result. Later contexts for the same code do nothing.

    Without it each worker of a job that starts on a new machine would compile, all at the same time.
    """
    return _UNLOCKED if what in _loaded else _first_call(what)


@contextmanager
def _first_call(what: str) -> Iterator[None]:
    with ExitStack() as locks:
        if _CACHE is not None:
            path = Path(_CACHE) / "compiling.lock"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    locks.enter_context(FileLock(path, wait=False))
                except BlockingIOError:
                    with _reminding("waiting for another process, which compiles %s", what):
                        locks.enter_context(FileLock(path))
            except OSError:  # a file system without locks
                pass
        with _reminding("compiling %s", what, after=compilations()):
            yield
    _loaded.add(what)


@contextmanager
def _reminding(sentence: str, what: str, after: int = -1) -> Iterator[None]:
    """Log what this process waits for, as long as it waits, if it has compiled more functions than ``after``.
    Loading takes a second.
    """
    ended = Event()

    def remind() -> None:
        start = time.monotonic()
        while not ended.wait(_REMINDER):
            if compilations() > after:
                _LOGGER.warning(f"{sentence}, for %.0f s so far", what, time.monotonic() - start)

    Thread(target=remind, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


class _Compilations(event.Listener):  # type: ignore[misc]  # numba has no types
    """Counter of the functions that this process compiles instead of loading; it logs the first one, because
    the first match on a machine waits for about a minute.
    """

    def __init__(self) -> None:
        self.count = 0
        self._has_warned = False

    def on_start(self, event: Any) -> None:
        """See the base class."""
        module = event.data["dispatcher"].py_func.__module__
        if not module.startswith("selectroute."):
            return
        self.count += 1
        if not self._has_warned and module.startswith(_KERNEL):
            self._has_warned = True
            _LOGGER.warning("%s", _sentence())

    def on_end(self, event: Any) -> None:
        """See the base class."""


def _sentence() -> str:
    if _CACHE is None:
        return (
            "compiling the matching kernel, about a minute in every process: there is no private "
            "directory for its cache; set NUMBA_CACHE_DIR to one"
        )
    return (
        "compiling the matching kernel, or a part of it that was not needed before: up to a minute, once on "
        f"this machine (kept in {_CACHE}; `selectroute warm` compiles all of it ahead)"
    )


_compilations = _Compilations()
event.register("numba:compile", _compilations)


def cache_folder() -> Path | None:
    """Return the cache directory of this version's compiled code; None if there is none."""
    return None if _CACHE is None else Path(_CACHE)


def compilations() -> int:
    """Return the number of functions that this process has compiled because they were not cached."""
    return _compilations.count
