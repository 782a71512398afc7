"""Ways in which the disk fails: it is full, by a limit of the system or by a shim; or a call gives EIO, by
the shim alone. The shim (``failing.c``) is compiled where there is a compiler.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

VARIABLE = "FAULTS_CONTROL"
WRITES, SYNCS, NAMES = 1, 2, 4


class Fault(Protocol):
    """One way to fail. It is on from `arm` to `clear`."""

    name: str

    @property
    def fired(self) -> bool | None:
        """Whether it was met since it was armed; None where nobody can say."""

    def arm(self, at: int, folder: Path, pid: int) -> None:
        """Let the process fail at its `at`-th write to the folder, or when it has written so much."""

    def clear(self) -> None:
        """Let it work again."""


class Control(ctypes.Structure):
    """What the shim looks at. The same fields as in ``failing.c``."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("at", "stays", "error", "kinds", "seen", "failed")),
        ("prefix", ctypes.c_char * 1000),
    ]


class Shim:
    """Fails the n-th call that a preloaded process makes on files of a folder, and perhaps all after it."""

    def __init__(self, control: Path, name: str, number: int, kinds: int, stays: bool) -> None:
        self.name = name
        self._number = number
        self._kinds = kinds
        self.stays = stays
        with control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), ctypes.sizeof(Control))
        self._control = Control.from_buffer(self._map)

    def arm(self, at: int, folder: Path, pid: int) -> None:
        """See `Fault`. Every process that is preloaded with this control fails. In place of a folder that is
        there it may be a file that is not: all whose paths begin with its path.
        """
        control = self._control
        control.prefix = b""
        control.at, control.seen, control.failed = at, 0, 0
        control.stays, control.error, control.kinds = self.stays, self._number, self._kinds
        control.prefix = os.fsencode(folder) + (b"/" if folder.is_dir() else b"")

    def clear(self) -> None:
        """See `Fault`."""
        self._control.prefix = b""

    @property
    def fired(self) -> bool:
        """See `Fault`."""
        return bool(self._control.failed)


class FileSizeLimit:
    """Files of a process may not grow beyond a limit (RLIMIT_FSIZE), `step` bytes more each time."""

    name = "disk full, by a limit"
    fired: bool | None = None

    def __init__(self, step: int) -> None:
        self._step = step
        self._pid = 0
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def arm(self, at: int, folder: Path, pid: int) -> None:
        """See `Fault`."""
        self._pid = pid
        _, most = self._before
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (self._step * at, most))

    def clear(self) -> None:
        """See `Fault`."""
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, self._before)


def faults(control: Path | None, step: int) -> list[Fault]:
    """All ways to fail that there are here."""
    found: list[Fault] = [FileSizeLimit(step)]
    if control is not None:
        found.append(Shim(control, "disk full", errno.ENOSPC, WRITES | NAMES, True))
        found.append(Shim(control, "I/O error, once", errno.EIO, WRITES | SYNCS | NAMES, False))
        found.append(Shim(control, "I/O error, for good", errno.EIO, WRITES | SYNCS | NAMES, True))
    return found


def compiled(folder: Path) -> tuple[dict[str, str], Path] | str:
    """Compile the shim. Returns what must be in the environment of a process, and the control that it maps;
    or why there is none.
    """
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return "there is no C compiler (cc, gcc or clang)"
    source, library = Path(__file__).with_name("failing.c"), folder / "failing.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        return f"{compiler} does not compile {source.name}: {ended.stderr.strip().splitlines()[:1]}"
    control = folder / "control"
    control.write_bytes(bytes(ctypes.sizeof(Control)))
    return {"LD_PRELOAD": str(library), VARIABLE: str(control)}, control


def is_preloaded(environment: Mapping[str, Any]) -> bool:
    """Whether a process of this environment has the shim."""
    return VARIABLE in environment
