"""Jars by name: the Ivy that PySpark ships fetches them, and they are kept in a folder of this user's.

Spark's own ``--packages`` is that Ivy, too, but a name that can't be had ends the JVM which Spark has just
started. Here it is asked before there is one, so that what is missing is a sentence.
"""

from __future__ import annotations

import os
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
    """Return the jars in the folder ``name`` of the cache, sorted by name; none if it is not there."""
    return tuple(sorted(_folder(name).glob("*.jar")))


def fetch(name: str, modules: Iterable[Module], transitive: bool = False) -> tuple[Path, ...]:
    """Return the jars in the folder ``name`` of the cache, sorted by name; fetch them if it is not there.

    The folder appears when it is whole, so one that is there is whole, whoever else fetches meanwhile. With
    ``transitive`` the jars that the modules depend on come, too.

    Raises:
        JarError: they are not there and can't be fetched; or there is no folder to keep them in.
        JavaError: there is no Java to fetch them with.
    """
    folder = _folder(name)
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            fetched = Path(scratch) / "fetched"
            for module in modules:
                _ivy(module, fetched, Path(scratch) / "ivy", transitive)
            try:
                fetched.rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was first, with the same jars
                    raise
    return kept(name)


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
