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
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.crash.programs.harness import ROOT

VARIABLE = "FAULTS_CONTROL"
_MOST = 5_000
WRITES, SYNCS, NAMES = 1, 2, 4


class Fault(Protocol):
    """One way to fail. It is on from `arm` to `clear`; `fired` says whether it was met since it was armed,
    None where nobody can say.
    """

    name: str
    fired: bool | None

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
        self.name, self.stays, self._number, self._kinds = name, stays, number, kinds
        with control.open("r+b") as file:
            self._control = Control.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(Control)))

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
        self._control.prefix = b""

    @property
    def fired(self) -> bool:
        return bool(self._control.failed)


class FileSizeLimit:
    """Files of a process may not grow beyond a limit (RLIMIT_FSIZE), `step` bytes more each time."""

    name = "disk full, by a limit"
    fired: bool | None = None

    def __init__(self, step: int) -> None:
        self._step, self._pid = step, 0
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def arm(self, at: int, folder: Path, pid: int) -> None:
        self._pid = pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (self._step * at, self._before[1]))

    def clear(self) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, self._before)


@contextmanager
def armed(fault: Fault, at: int, folder: Path, pid: int = 0) -> Iterator[None]:
    """Have a fault for a while; see `Fault`."""
    fault.arm(at, folder, pid)
    try:
        yield
    finally:
        fault.clear()


def in_turn(turn: Callable[[int], tuple[bool, bool]], step: int, refused: str = "refused") -> Counter[str]:
    """Let each write fail, or each `step`-th, until a turn has met no failure; return what was counted.

    A turn gets the number of the write, and returns whether it is done, and whether something failed.
    """
    counts: Counter[str] = Counter()
    for at in range(1, _MOST, step):
        done, failed = turn(at)
        if not failed:
            return counts
        counts["done all the same" if done else refused] += 1
    raise AssertionError("it was never done without a failure")


def full_disk(control: Path) -> Shim:
    """A disk that is full from a write on."""
    return Shim(control, "disk full", errno.ENOSPC, WRITES | NAMES, True)


def shims() -> list[Shim]:
    """All ways in which a shim fails; none in a process without one."""
    if VARIABLE not in os.environ:
        return []
    control, kinds = Path(os.environ[VARIABLE]), WRITES | SYNCS | NAMES
    once, always = (
        Shim(control, f"I/O error, {name}", errno.EIO, kinds, name != "once") for name in ("once", "for good")
    )
    return [full_disk(control), once, always]


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


def run_again(made: tuple[dict[str, str], Path] | str) -> None:
    """Run this program again in a process that has the compiled shim, and end as that does; return there, and
    where no shim was compiled.
    """
    if not isinstance(made, str) and VARIABLE not in os.environ:
        command = [sys.executable, *sys.orig_argv[1:]]
        sys.exit(subprocess.run(command, cwd=ROOT, env={**os.environ, **made[0]}, check=False).returncode)


def required(made: tuple[dict[str, str], Path] | str) -> tuple[dict[str, str], Path]:
    """Return a shim that was compiled; end the program if there is none."""
    return sys.exit(f"nothing was tried: {made}") if isinstance(made, str) else made
