"""Jars by name: the Ivy that PySpark ships fetches them, and they are kept in a folder of this user's.

Spark's own ``--packages`` is that Ivy, too, but a name that can't be had ends the JVM which Spark has just
started. Here it is asked before there is one, so that what is missing is a sentence.

A folder of the cache has a list of its jars with the SHA-256 of each as it was fetched. Only listed jars are
used, and each is compared with the list every time: if a jar was changed, or is missing, the folder is
fetched anew. Folders of earlier releases have no list; it is written when they are first used.
"""

from __future__ import annotations

import hashlib
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

from selectroute.selector.errors import SelectRouteError
from selectroute.spark import java

IVY_SETTINGS: Final = "SELECTROUTE_IVY_SETTINGS"
"""The variable that names an ``ivysettings.xml``, for who fetches from a registry of their own."""

_SECONDS: Final = 600
_PAUSES: Final = (1.0, 5.0)
"""Seconds before a registry that did not answer is asked again."""

_UNREACHED: Final = b"Server access error"
"""What Ivy says of a registry that did not answer; of one that lacks a module it says something else."""


_LIST: Final = "SHA256SUMS"
"""The list of a folder's jars, in the format of ``sha256sum``."""

_LINE: Final = re.compile(r"([0-9a-f]{64})  ([0-9A-Za-z][0-9A-Za-z._-]*\.jar)")


class JarError(SelectRouteError):
    """Jars that can't be fetched. The text says which, and why."""


@dataclass(frozen=True, slots=True)
class Module:
    """A published module: ``organisation:name:version``."""

    organisation: str
    name: str
    version: str

    @property
    def file(self) -> str:
        """The name of its jar."""
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
        raise JarError("PySpark, whose Ivy fetches jars, is not installed (the extra `spark`)")
    return folder


def kept(name: str) -> tuple[Path, ...]:
    """Return the jars of the folder ``name`` of the cache, sorted by name.

    None if it is not there, or is not as it was fetched.
    """
    folder = _folder(name)
    try:
        if folder.is_dir() and not (folder / _LIST).exists():
            _write_list(folder)
        lines = (folder / _LIST).read_text().splitlines()
        listed = [match for line in lines if (match := _LINE.fullmatch(line))]
        whole = len(listed) == len(lines) and all(_digest(folder / one[2]) == one[1] for one in listed)
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(sorted(folder / one[2] for one in listed)) if whole else ()


def fetch(name: str, modules: Iterable[Module], transitive: bool = False) -> tuple[Path, ...]:
    """Return the jars in the folder ``name`` of the cache, sorted by name; fetch them where `kept` has none.

    The folder appears when it is whole, so one that is there is whole, whoever else fetches meanwhile. With
    ``transitive`` the jars that the modules depend on come, too.

    Raises:
        JarError: they are not there and can't be fetched; or there is no folder to keep them in.
        JavaError: there is no Java to fetch them with.
    """
    found = kept(name)
    if found:
        return found
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
    """Write the list of the jars in a folder; whole, whoever else does so."""
    lines = [f"{_digest(jar)}  {jar.name}\n" for jar in sorted(folder.glob("*.jar"))]
    descriptor, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(lines)
    os.replace(name, folder / _LIST)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def forget(name: str) -> None:
    """Remove a folder of the cache, so that its jars are fetched anew."""
    shutil.rmtree(_folder(name), ignore_errors=True)


def _folder(name: str) -> Path:
    for cache in java._private_folders():
        return cache / "jars" / name
    raise JarError("no folder that only this user can write was found for jars: set XDG_CACHE_HOME to one")


def _ivy(module: Module, folder: Path, scratch: Path, transitive: bool) -> None:
    """Fetch one module into a folder; Ivy checks each jar against the checksum published beside it."""
    ivy = next(spark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise JarError("this PySpark ships no Ivy to fetch jars with")
    settings = os.environ.get(IVY_SETTINGS)
    command = [
        *(str(java.find_java().home / "bin" / "java"), "-jar", str(ivy), "-cache", str(scratch)),
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
