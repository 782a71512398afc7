"""A command run in this process: its exit code, what it printed and what it reported."""

from __future__ import annotations

import io
import sys
from contextlib import ExitStack

import pytest
import typer

from selectroute import cli
from selectroute.registry.registry import Registry
from tests.support.logs import log_as_before
from tests.support.servers.serving import served


@pytest.fixture(scope="session")
def command():
    """The whole command line. Typer makes it anew for each call, which takes longer than most commands."""
    return typer.main.get_command(cli.app)


@pytest.fixture
def run(monkeypatch, capsys, command):
    made_anew = cli.app

    def call(*arguments, stdin: str | bytes | io.RawIOBase = ""):
        # Help lays out the options of the command that it is given, for good.
        monkeypatch.setattr(cli, "app", made_anew if "--help" in arguments else command)
        monkeypatch.setattr(sys, "argv", ["selectroute", *map(str, arguments)])
        data = stdin.encode() if isinstance(stdin, str) else stdin
        buffer = io.BytesIO(data) if isinstance(data, bytes) else io.BufferedReader(data)
        # As in the C locale of old: what the locale says is not asked.
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer, "ascii", "surrogateescape"))
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        captured = capsys.readouterr()
        return exit_.value.code, captured.out, captured.err

    return call


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return f"sqlite:///{tmp_path}/registry.db"


@pytest.fixture(params=["database", "service"])
def run_on_either(request, run, database, monkeypatch):
    """Runs commands on a database, and on a service."""
    with ExitStack() as opened:
        url = database
        if request.param == "service":
            url = opened.enter_context(served(opened.enter_context(Registry.open(database))))
        monkeypatch.setenv("SELECTROUTE_REGISTRY", url)
        monkeypatch.setenv("SELECTROUTE_QUEUES", url)
        yield run


@pytest.fixture(autouse=True)
def _log_as_before():
    """A command that serves sets up the log of its process, which is that of all tests."""
    with log_as_before():
        yield
