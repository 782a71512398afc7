"""Ctrl-C and SIGTERM, at a terminal, in every command that takes a while: one line, and its exit code."""

import json
import re
import socket
import subprocess
import sys
import time

import pytest

import selectroute as sr
from selectroute.queues.sql.queue import SqlQueue
from tests.unit.cli.interrupted import AtTerminal

pytestmark = pytest.mark.slow

INTERRUPTED = 130
REGISTRY = "sqlite:///registry.db"
ADD = ("subscription", "add", "a = 1", "--id", "one", "--registry", REGISTRY)


@pytest.fixture
def started(tmp_path):
    """A function that starts a command at a terminal."""
    commands = []

    def start(*arguments, **environment):
        commands.append(AtTerminal(tmp_path, *arguments, **environment))
        return commands[-1]

    yield start
    for command in commands:
        command.close()


@pytest.fixture
def many(tmp_path):
    """A file of more subscriptions than a command reads in seconds."""
    path = tmp_path / "many.jsonl"
    with path.open("w") as file:
        for n in range(300_000):
            row = {"id": f"s{n}", "selector": f"color = 'c{n}' AND (weight > {n} OR price < {n}.5)"}
            file.write(json.dumps(row) + "\n")
    return path


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("seconds", [0, 0.05, 0.1, 0.2, 0.4])
def test_a_command_is_interrupted_while_it_loads(started, seconds):
    command = started("index", "stats", "snapshots", PYTHONPROFILEIMPORTTIME="1")
    # Python lists what it has imported: something of ours, so its own start is over.
    command.until(lambda: re.search(r"\| +signal\n.*\|.*\n", command.shown) is not None)
    time.sleep(seconds)
    command.type_ctrl_c()
    assert command.ended() in (INTERRUPTED, 3), command.shown  # 3: it was done before


DISCARDED = """
import os, signal, time
from selectroute.cli.exits import Interrupted, interruptible, interruption_kept

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        print("not reached: Python discards what is raised here")

interruptible()
try:
    with interruption_kept():
        try:
            one = Finalised()
            del one
            time.sleep(300)
        finally:
            time.sleep(0.5)
            print("cleaned up")
except Interrupted as end:
    time.sleep(0.5)
    print(f"interrupted {end.code}")
"""

CONVERTED = """
import os, signal
from selectroute.cli.exits import Interrupted, interruptible, interruption_kept

interruptible()
try:
    with interruption_kept():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException as error:
            raise ValueError("a library's error") from error
except Interrupted as end:
    print(f"interrupted {end.code}")
"""


@pytest.mark.parametrize(
    ("program", "shown"),
    [(DISCARDED, "cleaned up\ninterrupted 130\n"), (CONVERTED, "interrupted 130\n")],
)
def test_an_interruption_is_not_lost_in_python_or_a_library(program, shown):
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert (ended.stdout, ended.stderr) == (shown, "")


def interrupted(command, after):
    """Type Ctrl-C after so many seconds, and check that the command ends with one line."""
    time.sleep(after)
    command.type_ctrl_c()
    assert command.ended() == INTERRUPTED
    assert command.shown.rstrip().endswith("selectroute: interrupted"), command.shown


def test_building_and_importing_are_interrupted_with_one_line(started, many, tmp_path):
    interrupted(started("index", "build", many, tmp_path / "snapshots"), 2.5)
    interrupted(started("subscription", "import", many, "--registry", REGISTRY), 2.5)
    again = started("registry", "info", "--registry", REGISTRY)
    assert again.process.wait(60) in (0, 3) and "300,000" not in again.shown
    assert not list((tmp_path / "snapshots").glob("manifest-*.json"))


def test_waiting_for_a_message_or_until_a_change_is_effective_is_interrupted_with_one_line(started, tmp_path):
    SqlQueue.create(f"sqlite:///{tmp_path}/registry.db", "ORDERS").close()
    interrupted(started("queue", "get", "ORDERS", "--wait", "300", "--queues", REGISTRY), 2)
    assert started(*ADD).ended() == 0
    interrupted(started("subscription", "get", "one", "--wait", "300", "--registry", REGISTRY), 2)


@pytest.mark.parametrize("ending", ["type_ctrl_c", "terminate"])
@pytest.mark.parametrize("twice", [False, True])
def test_a_service_ends_after_what_is_in_hand(started, ending, twice):
    port = free_port()
    command = started("serve", "--registry", REGISTRY, "--port", port)
    command.until(f"127.0.0.1:{port}")
    getattr(command, ending)()
    if twice:
        time.sleep(0.02)
        getattr(command, ending)()
    assert command.ended() == 0, command.shown


@pytest.mark.parametrize("ending", ["type_ctrl_c", "terminate"])
@pytest.mark.parametrize("early", [False, True])
def test_publishing_ends_after_what_is_in_hand(started, ending, early, tmp_path):
    assert started(*ADD).ended() == 0
    command = started("registry", "publish", "--follow", "--registry", REGISTRY)
    command.until("publishing" if early else "Ctrl-C ends")
    getattr(command, ending)()
    assert command.ended() == 0, command.shown
    assert sr.Snapshot.open(tmp_path / "registry.db.snapshots").revision == 1
