"""Shell for the commands of pages: those of `selectroute` run in this process, all others in bash."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from docs.site.pages import blocks
from selectroute import cli

BASH = ("bash", "-euo", "pipefail", "-c")
PUNCTUATION = "();<>|&"


def environment() -> dict[str, str]:
    """Return the environment without what somebody told the commands on this machine, and with the commands
    of this Python.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SELECTROUTE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "XDG_CONFIG_HOME": os.devnull}


def finished(
    command: Sequence[str], folder: Path, timeout: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command, which must end with exit code 0."""
    ran = subprocess.run(
        command, cwd=folder, env=environment() | variables, capture_output=True, text=True, timeout=timeout
    )
    assert ran.returncode == 0, f"{command[-1]}: exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran


def code_of(page: Path, language: str, mark: str = "") -> list[str]:
    """Return the code of a page in a language, by the first word of the comment before it."""
    found = blocks(page.read_text(encoding="utf-8"))
    return [one.code for one in found if (one.language, one.mark.partition(":")[0]) == (language, mark)]


def lines(code: str) -> list[str]:
    """Return the commands of a block: lines that end in a backslash go on, a here-document is part of its
    command, and comments are none.

    >>> lines("# two\\nls \\\\\\n  -l\\n\\nls | wc -l\\n")
    ['ls    -l', 'ls | wc -l']
    >>> lines("cat > a <<'END'\\n# b\\nEND\\nls\\n")
    ["cat > a <<'END'\\n# b\\nEND", 'ls']
    """
    commands: list[str] = []
    end = ""
    for line in code.replace("\\\n", " ").splitlines():
        if end:
            commands[-1] += f"\n{line}"
            end = "" if line == end else end
        elif line.strip() and not line.strip().startswith("#"):
            commands.append(line.strip())
            if here := re.search(r"<<'(\w+)'$", line):
                end = here[1]
    return commands


def words(command: str) -> list[str]:
    """Return the words of a command up to its end, a pipe or a redirection.

    >>> words("selectroute queue put Q - 2> log < a.json  # a file")
    ['selectroute', 'queue', 'put', 'Q', '-']
    """
    found: list[str] = []
    for word in _lexed(command):
        if set(word) <= set(PUNCTUATION):
            if word.startswith(">") and found[-1].isdigit() and f"{found[-1]}{word}" in command:
                found.pop()  # 2> is one word
            break
        found.append(word)
    return found


def is_plain(command: str) -> bool:
    """Return whether a command needs no shell: no pipe, no redirection, no variable."""
    variables = "$" in re.sub("'[^']*'", "", command)
    return not variables and words(command) == list(_lexed(command))


def _lexed(command: str) -> Iterator[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=PUNCTUATION)
    lexer.whitespace_split = True
    return iter(lexer)


@cache
def command_line() -> typer.core.TyperGroup:
    """Return the whole command line. Typer makes it anew for each call, which takes longer than most do."""
    return typer.main.get_command(cli.app)


def find_command(argv: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the command that these words name, and the words after its name. KeyError if there is none."""
    command, rest = command_line(), list(argv)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        command = command.commands[rest.pop(0)]
    return command, rest


class Shell:
    """Folder and variables in which commands run."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.variables = variables
        self.reported = ""
        """What the last command wrote to standard error."""

    def run(self, code: str, **variables: str) -> str:
        """Run commands one after another, and return what they print. Each must end with exit code 0."""
        return "".join(self.one(command, **variables) for command in lines(code))

    def one(self, command: str, **variables: str) -> str:
        """Run one command, and return what it prints. It must end with exit code 0. What it exports, later
        commands have.
        """
        if command.startswith("export "):
            name, value = words(command)[1].split("=", 1)
            self.variables[name] = value
            return ""
        command = re.sub(r"\$(\w+)", lambda name: self.variables.get(name[1], name[0]), command)
        if not (command.startswith("selectroute ") and is_plain(command)):
            return self.bash(command, **variables)
        code, out, err = self._called(words(command), variables)
        assert code == 0, f"{command}: exit code {code}\n{out}\n{err}"
        self.reported = err
        return out

    def bash(self, code: str, **variables: str) -> str:
        """Run commands in one bash, and return what they print. They must end with exit code 0."""
        ran = finished([*BASH, code], self.folder, timeout=120, **self.variables | variables)
        self.reported = ran.stderr
        return ran.stdout

    def _called(self, argv: list[str], variables: dict[str, str]) -> tuple[object, str, str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        at_interrupt = signal.getsignal(signal.SIGINT)
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in [name for name in os.environ if name.startswith("SELECTROUTE_")]:
                patch.delenv(name)
            for name, value in {"XDG_CONFIG_HOME": os.devnull, **self.variables, **variables}.items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", argv)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
            patch.setattr(cli, "app", command_line())
            try:
                cli.main()
                code: object = 0
            except SystemExit as ended:
                code = ended.code or 0
            finally:
                signal.signal(signal.SIGINT, at_interrupt)
        return code, *(one.buffer.getvalue().decode() for one in (out, err))

    @contextmanager
    def started(self, command: str, said: str, **variables: str) -> Iterator[re.Match[str]]:
        """Start a command that goes on; yield what it says, a pattern. In the end a signal stops it, and its
        exit code must be 0.
        """
        process, found = self.begun(command, said, **variables)
        try:
            yield found
            process.terminate()
            assert process.wait(timeout=60) == 0, command
        finally:
            process.kill()
            process.wait()

    def begun(self, command: str, said: str, **variables: str) -> tuple[subprocess.Popen[str], re.Match[str]]:
        """Start a command in a process of its own, and wait until it says something, a pattern."""
        log = self.folder / f"said-{time.monotonic_ns()}"
        with log.open("w") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", *words(command)],
                cwd=self.folder,
                env=environment() | self.variables | variables,
                stdout=written,
                stderr=written,
                text=True,
            )
        for _ in range(600):
            if found := re.search(said, log.read_text()):
                return process, found
            if process.poll() is not None:
                break
            time.sleep(0.1)
        process.kill()
        raise AssertionError(f"{command}\n{log.read_text()}")
