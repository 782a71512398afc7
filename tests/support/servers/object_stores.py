"""Object stores for tests: how a client is pointed at one, and emulators that are installed by name."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from selectroute.durable.lock import FileLock
from selectroute.durable.private_folder import NOT_WRITABLE, private_folders
from tests.support.components import missing

BUCKET = "bucket"
"""The bucket, or container, of a store for tests."""

_INSTALL_SECONDS = 900


@dataclass(frozen=True)
class ObjectStore:
    """A server of an object store on this machine, or a proxy before it.

    Attributes:
        root: the URL of a bucket, such as ``s3://bucket``.
        endpoint: the URL at which the server answers.
        variables: returns the environment of a client of the server, from the URL at which it asks.
    """

    root: str
    endpoint: str
    variables: Callable[[str], dict[str, str]]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a client."""
        return self.variables(self.endpoint)

    def behind(self, proxy: str) -> ObjectStore:
        """The same store, asked at another URL."""
        return replace(self, endpoint=proxy)

    @contextmanager
    def client(self, **more: str) -> Iterator[None]:
        """Make this process a client of the store; ``more`` are variables in the place of its own."""
        with in_environment({**self.environment, **more}):
            yield


@contextmanager
def in_environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Let clients of object stores in this process find these variables."""
    from selectroute.storage import objects

    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    objects._opened.cache_clear()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        objects._opened.cache_clear()


@contextmanager
def running(name: str, command: Sequence[str], log: Path, answers: Callable[[], bool]) -> Iterator[None]:
    """Run an emulator. Args as those of `ServerProcess`; ``name`` is what to call it."""
    from selectroute.testing.broker import ServerError, ServerProcess

    server = ServerProcess(log, command)
    try:
        server.start(answers)
    except ServerError as error:
        missing(f"{name} can't be started: {error}")
    try:
        yield
    finally:
        server.stop()


def installed(name: str, product: str, command: Callable[[Path], Sequence[str]]) -> Path:
    """Return a file of an emulator, which is installed once into the user's cache folder.

    Args:
        name: what to call it, with its version.
        product: the file, below the folder that ``command`` fills.
        command: returns the command that installs it into a folder.
    """
    cache = next(private_folders(NOT_WRITABLE), None)
    if cache is None:
        missing(f"there is no folder of this user's own to install {name} into")
    folder = cache / "emulators" / name
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{name}.lock")):
        if not (folder / product).is_file():
            _install(name, product, folder, command)
    return folder / product


def _install(name: str, product: str, folder: Path, command: Callable[[Path], Sequence[str]]) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fresh = Path(scratch) / "fresh"
        fresh.mkdir()
        try:
            done = subprocess.run(
                [*command(fresh)],
                cwd=fresh,
                capture_output=True,
                text=True,
                check=False,
                timeout=_INSTALL_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            missing(f"{name} can't be installed: {error}")
        if done.returncode or not (fresh / product).is_file():
            missing(f"{name} can't be installed: {done.stderr.strip()[-300:]}")
        fresh.rename(folder)
