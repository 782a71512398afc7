"""Compiler of the kernel, with its cache in a folder that only this user can write.

numba's cache holds machine code that is run as it is found. So it must lie where nobody else can put a file:
a folder of mode 0700 of our own, below the user's cache folder or, without one, below the system's temporary
folder. Where that cannot be had, nothing is cached and each process compiles anew.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
from numba.core import event

from selectroute.durable.lock import FileLock
from selectroute.durable.private_folder import CLOSED, private_folders

_LOGGER = logging.getLogger("selectroute")
_KERNEL: Final = "selectroute.match."
"""Of these modules are the functions that take long to compile."""

ROOMS: Final = ("arrays", "clauses", "match")
"""Folders whose constants and functions are compiled into the kernel: each change of them is a version."""

_Function = TypeVar("_Function", bound=Callable[..., object])


def _private_folder() -> Path | None:
    """Return a folder that exists, is this user's and is closed to others; ``None`` if there is none."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen)  # the user's own choice and responsibility
    return next(private_folders(CLOSED), None)


def _cache() -> str | None:
    """Return the cache of this version of the code: numba looks at the changes of a function's own file
    only.
    """
    folder = _private_folder()
    if folder is None:
        return None
    sources = [path for room in ROOMS for path in sorted((Path(__file__).parents[1] / room).rglob("*.py"))]
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    return str(folder / f"kernel-{version}")


_CACHE = _cache()
if _CACHE is not None:
    numba.config.CACHE_DIR = _CACHE


def compiled(function: _Function) -> _Function:
    """Compile a function of the kernel: no Python objects, floats as IEEE 754 has them, the GIL released."""
    made: _Function = numba.njit(cache=_CACHE is not None, nogil=True, error_model="numpy")(function)
    return made


def inlined(function: _Function) -> _Function:
    """Compile a function into its caller: a call with all tables as arguments costs more than what most of
    them do.
    """
    made: _Function = numba.njit(cache=_CACHE is not None, nogil=True, error_model="numpy", forceinline=True)(
        function
    )
    return made


_UNLOCKED: Final = nullcontext()
_is_loaded = False


def compiling_alone() -> AbstractContextManager[None]:
    """Return a context for the kernel's first call in this process: of all processes of a user one compiles,
    the others wait and load the result. Later contexts do nothing.

    Without it each worker of a job that starts on a new machine would compile, all at the same time.
    """
    return _UNLOCKED if _is_loaded else _first_call()


@contextmanager
def _first_call() -> Iterator[None]:
    global _is_loaded
    with ExitStack() as held:
        if _CACHE is not None:
            path = Path(_CACHE) / "compiling.lock"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    held.enter_context(FileLock(path, wait=False))
                except BlockingIOError:
                    _LOGGER.warning("waiting for another process, which compiles the matching kernel")
                    held.enter_context(FileLock(path))
            except OSError:  # a cache that can only be read, as in an image, or a file system without locks
                pass
        yield
    _is_loaded = True


class _Compilations(event.Listener):  # type: ignore[misc]  # numba has no types
    """Counts the functions that this process compiles instead of loading them, and says so at the first one.

    Otherwise whoever matches for the first time on a machine would wait for half a minute without a word.
    """

    def __init__(self) -> None:
        self.count = 0
        self._has_told = False

    def on_start(self, event: Any) -> None:
        """See the base class."""
        module = event.data["dispatcher"].py_func.__module__
        if not module.startswith("selectroute."):
            return
        self.count += 1
        if not self._has_told and module.startswith(_KERNEL):
            self._has_told = True
            _LOGGER.warning("%s", _sentence())

    def on_end(self, event: Any) -> None:
        """See the base class."""


def _sentence() -> str:
    if _CACHE is None:
        return (
            "compiling the matching kernel, about half a minute in every process: there is no folder of this "
            "user alone to keep it in; name one in NUMBA_CACHE_DIR"
        )
    return (
        "compiling the matching kernel, once on this machine: about half a minute "
        f"(kept in {_CACHE}; `selectroute warm` does it ahead)"
    )


_compilations = _Compilations()
event.register("numba:compile", _compilations)


def cache_folder() -> Path | None:
    """Return the folder of the compiled code of this version; None if it can be kept nowhere."""
    return None if _CACHE is None else Path(_CACHE)


def compilations() -> int:
    """Return how many functions this process has compiled: those that were in no cache."""
    return _compilations.count
