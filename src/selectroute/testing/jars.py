"""Jars by name, fetched with the Ivy that PySpark ships and cached in a folder of this user.

Spark's own ``--packages`` uses that Ivy, too, but a missing module ends the JVM that Spark has just started.
Here Ivy runs before the JVM, so that a missing module is an error of one sentence.

A folder of the cache has a list of its jars with the SHA-256 of each as fetched. Only listed jars are used,
and each is compared with the list every time: if a jar was changed, or is missing, the folder is fetched
again.

A job needs no jars. Tests and benchmarks do: a broker, and Spark's own Kafka connector to compare with.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from selectroute.durable import disk
from selectroute.durable.private_folder import NOT_WRITABLE, private_folders
from selectroute.extras import the_extra
from selectroute.selector.errors import SelectRouteError
from selectroute.spark import session

IVY_SETTINGS: Final = "SELECTROUTE_IVY_SETTINGS"
"""Environment variable that names an ``ivysettings.xml``, for fetching from a private registry."""

_SECONDS: Final = 600
_PAUSES: Final = (1.0, 5.0)
"""Seconds before each retry if a registry did not answer."""

_UNREACHED: Final = b"Server access error"
"""Ivy's message if a registry did not answer, but not if the registry lacks the module."""


_LIST: Final = "SHA256SUMS"
"""File name of the list of a folder's jars, in the format of ``sha256sum``."""

_LINE: Final = re.compile(r"([0-9a-f]{64})  ([0-9A-Za-z][0-9A-Za-z._-]*\.jar)")


class JarError(SelectRouteError):
    """Failure to fetch jars. The text names them and the reason."""


@dataclass(frozen=True, slots=True)
class Module:
    """Published module: ``organisation:name:version``."""

    organisation: str
    name: str
    version: str

    @property
    def file(self) -> str:
        """File name of the module's jar."""
        return f"{self.name}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"


def spark_jars() -> Path:
    """Return the folder of the jars that PySpark ships.

    Raises:
        JarError: PySpark is not installed.
    """
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else None
    if folder is None or not folder.is_dir():
        raise JarError(f"jars are fetched by PySpark's Ivy, which needs {the_extra('spark')}")
    return folder


def kept(name: str) -> tuple[Path, ...]:
    """Return the jars of the folder ``name`` of the cache, sorted by name.

    Empty if the folder is missing, or not as fetched.
    """
    folder = _folder(name)
    try:
        lines = (folder / _LIST).read_text().splitlines()
        listed = [match for line in lines if (match := _LINE.fullmatch(line))]
        is_kept = all(disk.sha256(folder / entry[2]) == entry[1] for entry in listed)
    except (OSError, UnicodeDecodeError):
        return ()
    return (
        tuple(sorted(folder / entry[2] for entry in listed)) if is_kept and len(listed) == len(lines) else ()
    )


def fetch(name: str, modules: Iterable[Module], transitive: bool = False) -> tuple[Path, ...]:
    """Return the jars in the folder ``name`` of the cache, sorted by name; fetch them if `kept` has none.

    The folder is renamed into place when it is complete, so concurrent processes see all jars or none. With
    ``transitive`` the dependencies of the modules are fetched, too.

    Raises:
        JarError: the jars can't be fetched, or there is no folder for them.
        JavaError: there is no Java to fetch them with.
    """
    present = kept(name)
    if present:
        return present
    folder = _folder(name)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fetched = Path(scratch) / "fetched"
        for module in modules:
            _ivy(module, fetched, Path(scratch) / "ivy", transitive)
        _write_list(fetched)
        try:
            fetched.rename(folder)
        except OSError:
            if not kept(name):  # otherwise another process was first, with the same jars
                forget(name)
                fetched.rename(folder)
    return kept(name)


def _write_list(folder: Path) -> None:
    """Write the list of the jars in a folder, atomically."""
    lines = [f"{disk.sha256(jar)}  {jar.name}\n" for jar in sorted(folder.glob("*.jar"))]
    descriptor, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(lines)
    os.replace(name, folder / _LIST)


def forget(name: str) -> None:
    """Remove a folder of the cache, so that its jars are fetched again."""
    shutil.rmtree(_folder(name), ignore_errors=True)


def _folder(name: str) -> Path:
    for cache in private_folders(NOT_WRITABLE):
        return cache / "jars" / name
    raise JarError("there is no folder for jars that only this user can write: set XDG_CACHE_HOME to one")


def _ivy(module: Module, folder: Path, scratch: Path, transitive: bool) -> None:
    """Fetch one module into a folder; Ivy checks each jar against its published checksum."""
    ivy = next(spark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise JarError("this PySpark does not ship Ivy, which fetches jars")
    settings = os.environ.get(IVY_SETTINGS)
    command = [
        *(str(session.find_java().home / "bin" / "java"), *session.SHORT_LIVED, "-jar", str(ivy)),
        *("-cache", str(scratch)),
        *(("-settings", settings) if settings else ()),
        *("-confs", "default", "-dependency", module.organisation, module.name, module.version),
        *(() if transitive else ("-notransitive",)),
        *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    for pause in (*_PAUSES, None):
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise JarError(f"fetching {module} took longer than {_SECONDS} s") from None
        if done.returncode == 0 and (folder / module.file).is_file():
            return
        reached = _UNREACHED not in done.stdout
        if reached or pause is None:
            break
        time.sleep(pause)
    why = "the registry does not have it" if reached else "no network, or a registry that does not answer"
    raise JarError(f"{module} could not be fetched: {why}")
