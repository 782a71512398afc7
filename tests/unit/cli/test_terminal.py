"""Every command with each of its streams a terminal or not: results on standard output, whole; all else on
standard error; the same exit code.
"""

import json
import re
import shutil
import sys

import pytest

from selectroute.registry.registry import Registry
from tests.unit.cli.interrupted import AtTerminal
from tests.unit.cli.terminal import run

pytestmark = pytest.mark.slow

REGISTRY = "sqlite:///registry.db"
FEW = ["", "out err"]
OUTPUTS = ["", "err", "out", "out err"]
ALL = ["", "err", "out", "out err", "in", "in err", "in out", "in out err"]
LINES = '{"id": "x", "selector": "a = 1"}\n{"id": "y", "topic": "cars/+", "selector": "b = 2"}\n'
MESSAGE = '{"topic": "cars/eu", "properties": {"a": 1, "b": 2}}'

# arguments, standard input
COMMANDS = [
    ("selector check -", "a = 1\nb = 'x'\n"),
    ("selector explain", f"a = 1|{MESSAGE}"),
    ("selector match", f"a = 1|{MESSAGE}"),
    ("selector match nothing", f"a = 2|{MESSAGE}"),
    ("selector dialects -o json", ""),
    ("subscription list", ""),
    ("subscription list -o json", ""),
    ("subscription list --topic nobody/has/it", ""),
    ("subscription get s1", ""),
    ("subscription get nobody", ""),
    ("subscription export", ""),
    ("subscription import - --registry sqlite:///other.db", LINES),
    ("subscription import - --registry sqlite:///other.db -o json", LINES),
    ("subscription import -", ""),
    ("subscription remove s1 -o ndjson", ""),
    ("subscription add - --id new", "a = 5"),
    ("registry info", ""),
    ("registry verify", ""),
    ("registry publish", ""),
    ("token list", ""),
    ("queue list", ""),
    ("queue list ORDERS", ""),
    ("queue put ORDERS - --message-id ID:" + "41" * 24, "body"),
    ("queue browse ORDERS", ""),
    ("queue get ORDERS", ""),
    ("queue get NOBODY", ""),
    ("queue depth ORDERS", ""),
    ("index build - built", LINES),
    ("index stats snapshots", ""),
    ("index verify snapshots", ""),
    ("index merge snapshots", ""),
    ("index collect snapshots", ""),
]


LAID_OUT = ["subscription list", "token list", "queue list ORDERS"]
"""These wrap on a terminal, and print a line a record elsewhere."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a registry, a queue with a message and a snapshot, as commands leave them."""
    folder = tmp_path_factory.mktemp("home")
    for command in (
        ["subscription", "import", "-"],
        ["queue", "create", "ORDERS"],
        ["queue", "put", "ORDERS", "shipped", "-p", "weight:integer=3000"],
        ["index", "build", "-", "snapshots"],
    ):
        given = LINES.replace('"x"', '"s1"').replace('"y"', '"s2"') if command[-1] == "-" else ""
        done = run(command, folder=folder, environment=ENVIRONMENT, stdin=(given or LINES).encode())
        assert done.code == 0, done
    return folder


ENVIRONMENT = {"SELECTROUTE_REGISTRY": REGISTRY}


def _arguments(command, given):
    """The arguments of a row of COMMANDS, and its standard input."""
    if "|" in given:  # a selector and a message
        return [*command.split()[:2], *given.split("|")], ""
    return command.split(), given


def _same(text):
    """What two runs say alike: without their times and folders."""
    text = re.sub(r"/\d+/home", "/home", re.sub(r"\d+\.\d s\b", "0.0 s", text))
    text = re.sub(r'"(created|modified)": ?"[^"]*"', '"when"', text)
    return [line for line in text.splitlines() if not line.strip().startswith(("created", "modified"))]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["few", "all"])
@pytest.mark.parametrize(("command", "given"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_results_are_whole_on_standard_output_whatever_is_a_terminal(home, tmp_path, command, given, every):
    arguments, stdin = _arguments(command, given)
    seen = {}
    for number, terminals in enumerate((ALL if stdin else OUTPUTS) if every else FEW):
        folder = tmp_path / str(number) / "home"
        shutil.copytree(home, folder)
        seen[terminals] = run(
            arguments, folder=folder, environment=ENVIRONMENT, terminals=terminals, stdin=stdin.encode()
        )
    plain = seen[""]
    for terminals, ran in seen.items():
        assert ran.code == plain.code, (terminals, ran)
        if "out" not in terminals:
            assert _same(ran.out) == _same(plain.out) and "\x1b" not in ran.out, terminals
        else:  # a terminal has styles beside the same text
            shown = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
            if command in LAID_OUT:
                assert all(len(line) <= 80 for line in shown.splitlines()), terminals
                assert all(line.split()[0] in shown for line in plain.out.splitlines()[1:]), terminals
                continue
            assert _same(shown) == _same(plain.out), terminals
        if "err" not in terminals:
            assert "\x1b" not in ran.err, terminals
            assert [line for line in ran.err.splitlines() if "Ctrl-D" not in line] == plain.err.splitlines()
        for line in filter(None, plain.err.splitlines()):
            assert line in ran.err, terminals


def test_an_export_in_a_terminal_fills_the_file(home, tmp_path):
    for terminals in ("err", "in err"):
        ran = run(["subscription", "export"], folder=home, environment=ENVIRONMENT, terminals=terminals)
        assert ran.code == 0
        assert [json.loads(line)["id"] for line in ran.out.splitlines()] == ["s1", "s2"]


@pytest.mark.parametrize("count", [3, 10_000])
def test_an_export_piped_to_an_import_in_a_terminal_copies_everything(tmp_path, count):
    lines = [json.dumps({"id": f"s{number}", "selector": f"a = {number}"}) for number in range(count)]
    with Registry.open(f"sqlite:///{tmp_path}/old.db") as old:
        old.import_(lines)
    code, shown = _piped(tmp_path, "sqlite:///old.db")
    assert code == 0, shown
    assert f"revision 1: {count:,} subscriptions" in shown
    with Registry.open(f"sqlite:///{tmp_path}/new.db") as new:
        assert len(new) == count


def test_an_import_after_a_command_that_failed_is_no_success(tmp_path):
    code, shown = _piped(tmp_path, "sqlite:///nosuch.db")
    assert code == 1 and "standard input has no subscriptions" in shown
    assert not (tmp_path / "new.db").exists()


def _piped(folder, url):
    """An export piped to an import in a terminal: the exit code, and what the terminal showed."""
    tool = f"{sys.executable} -m selectroute subscription"
    line = f"set -o pipefail; {tool} export --registry {url} | {tool} import - --registry sqlite:///new.db"
    terminal = AtTerminal(folder, command=["bash", "-c", line], XDG_CONFIG_HOME=str(folder))
    try:
        return terminal.ended(), terminal.shown
    finally:
        terminal.close()
