"""What a terminal of 80 columns shows: help texts, tables; and one meaning of exit codes for all commands."""

import os
import re
from functools import reduce

import pytest
import typer

from selectroute.cli import app
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.queue import SqlQueue
from selectroute.registry.registry import Registry
from tests.support.servers.serving import served
from tests.unit.cli.terminal import run as run_in_terminal


def commands(command, path=()):
    """Yield the arguments of all commands and groups."""
    yield path
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))


ALL = list(commands(typer.main.get_command(app)))
GROUPS = {path[:length] for path in ALL for length in range(len(path))}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_80_columns_with_room_for_its_texts(run, monkeypatch, path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    code, out, _ = run(*path, "--help")
    lines = out.splitlines()
    assert code == 0 and all(len(line) <= 80 for line in lines)
    assert "<str>" not in out and "<bool>" not in out and "[default: ()]" not in out
    options = "\n".join(lines).split("╭─ Options")[-1].split("╭─ Commands")[0]
    starts = [len(match.group()) for match in re.finditer(r"^│[ *]+-\S+( \S+)* {2,}(?=[^ │])", options, re.M)]
    assert starts and max(starts) <= 47, "a text has 32 columns and more"
    if path not in GROUPS and path[0] not in ("demo", "index", "dead-letter") and path != ("stream", "audit"):
        prose = out.partition("Usage")[2].partition("\n")[2].partition("╭─")[0]
        assert f"selectroute {' '.join(path)}" in prose, "an example"


def test_a_wrong_option_is_told_the_right_one(run, command):
    for path in ALL:
        if path in GROUPS:
            continue
        named = reduce(lambda group, name: group.commands[name], path, command)
        names = [name for one in named.params for name in one.opts if name.startswith("--") and len(name) > 5]
        for name in names:
            code, _, err = run(*path, f"{name}x")
            assert code == 2 and name in err, (path, name, err)


@pytest.mark.parametrize(("arguments", "remedy"), [
    ("subscription delete s", "did you mean 'remove'?"),
    ("sub list", "did you mean 'subscription'?"),
    ("token rm t", "did you mean 'revoke'?"),
    ("quue list", "did you mean 'queue'?"),
    ("subscription add s --destination ORDERS --registry sqlite:///r.db", "write queue:ORDERS, "),
    ("subscription list --registry foo.db", "for a file write sqlite:///foo.db"),
    ("index build subs.csv snapshots", "pandas.read_csv('subs.csv')"),
])  # fmt: skip
def test_a_slip_is_told_what_was_meant(run, monkeypatch, tmp_path, arguments, remedy):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERMINAL_WIDTH", "400")
    code, out, err = run(*arguments.split())
    assert code in (1, 2) and out == "" and remedy in " ".join(err.split())


def test_the_version_is_told(run):
    code, out, _ = run("--version")
    assert code == 0 and re.fullmatch(r"selectroute \d+\.\d+.*\n", out)


@pytest.mark.parametrize(("words", "found"), [
    ("selectroute sel", "selector"),
    ("selectroute subscription add a --dialect ib", "ibm-jms"),
    ("selectroute subscription get he", "heavy"),
    ("selectroute dead-letter list out --reason not-j", "not-json"),
])  # fmt: skip
def test_a_shell_completes(run, monkeypatch, tmp_path, words, found):
    url = f"sqlite:///{tmp_path}/r.db"
    run("subscription", "add", "a = 1", "--id", "heavy", "--registry", url)
    monkeypatch.setenv("SELECTROUTE_REGISTRY", url)
    monkeypatch.setenv("_SELECTROUTE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    _, out, _ = run()
    assert found in out.split()


@pytest.mark.slow
def test_ids_are_never_cut_and_selectors_wrap_in_their_column(tmp_path):
    ids = ["short", "01m83tqy3h3tgn7a25d4jp1xtt"]
    row = f'"topic": "cars/europe/germany/+/#", "selector": "{"a = 1 OR " * 9}b = 2"'
    lines = "".join(f'{{"id": "{id}", {row}}}\n' for id in ids)
    place = {"folder": tmp_path, "environment": {"SELECTROUTE_REGISTRY": "sqlite:///r.db"}}

    def shown(*arguments, stdin=b""):
        ran = run_in_terminal(list(arguments), **place, terminals="out", stdin=stdin)
        assert ran.code == 0, ran
        return re.sub(r"\x1b\[[0-9;]*m", "", ran.out)

    shown("subscription", "import", "-", stdin=lines.encode())
    out = shown("subscription", "list")
    assert all(re.search(rf"^{id} ", out, re.M) for id in ids)
    column = out.splitlines()[0].index("selector")
    rest = [line for line in out.splitlines()[1:] if not line.startswith(tuple(ids))]
    assert rest and all(not line[:26].strip() for line in rest), out
    assert any(line[column:].strip() for line in rest)

    filters = ("--topic", "cars/#", "--queue", "CARS.*", "--kafka", "cars.*")
    shown("token", "create", "--role", "writer", "--name", "the garage on the corner", *filters)
    out = shown("token", "list")
    assert re.search(r"^[0-9a-z]{26} .* 20\d\d-\d\d-\d\d *$", out, re.M), out

    def matched(terminals):
        message = '{"topic": "cars/europe/germany/berlin", "properties": {"a": 1}}'
        ran = run_in_terminal(["message", "match", message], **place, terminals=terminals)
        return [line for line in ran.out.splitlines() if "cars/" in line or "b = 2" in line]

    heads = sorted(line.split() for line in matched("out")[::2])
    assert heads == sorted([id, "cars/europe/germany/+/#"] for id in ids)
    assert all(len(line) <= 80 for line in matched("out"))
    assert {line.split()[0] for line in matched("")} == set(ids)  # one line each, for programs


def test_lists_of_nothing_say_so_on_standard_error(run, tmp_path):
    url = f"sqlite:///{tmp_path}/r.db"
    with Registry.open(url):
        pass
    assert run("subscription", "list", "--registry", url)[::2] == (0, "no subscriptions\n")
    assert run("token", "list", "--registry", url)[::2] == (0, "no tokens\n")
    assert run("queue", "list", "--queues", url)[::2] == (0, "no queues\n")
    run("queue", "create", "Q", "--queues", url)
    assert run("queue", "list", "Q", "--queues", url)[::2] == (0, "no messages\n")


def test_a_queue_that_is_there_already_is_told_of(run, tmp_path):
    url = f"sqlite:///{tmp_path}/q.db"
    assert run("queue", "create", "Q", "--queues", url)[::2] == (0, "")
    assert run("queue", "create", "Q", "--queues", url)[::2] == (0, "Q exists already, with these settings\n")
    with Registry.open(url) as registry, served(registry) as service:
        assert run("queue", "create", "Q", "--queues", service)[2].startswith("Q exists already")
        assert run("queue", "create", "R", "--queues", service)[2] == ""


NOT_THERE, CONFLICT, USAGE = 3, 4, 2


@pytest.mark.parametrize(("code", "arguments"), [
    (NOT_THERE, "registry info --registry sqlite:///{home}/none.db"),
    (NOT_THERE, "registry verify --registry sqlite:///{home}/none.db"),
    (NOT_THERE, "subscription list --registry sqlite:///{home}/none.db"),
    (NOT_THERE, "subscription export --registry sqlite:///{home}/none.db"),
    (NOT_THERE, "token revoke none"),
    (NOT_THERE, "index stats {home}/none"),
    (NOT_THERE, "index verify {home}/none"),
    (NOT_THERE, "index build {home}/none.jsonl {home}/made"),
    (NOT_THERE, "stream status {home}/none"),
    (NOT_THERE, "stream audit {home}/none"),
    (NOT_THERE, "stream deliveries {home}/none --subscription x"),
    (NOT_THERE, "dead-letter list {home}/none"),
    (NOT_THERE, "dead-letter replay {home}/none"),
    (NOT_THERE, "selector check --file {home}/none.txt"),
    (CONFLICT, "queue put FULL x"),
    (1, "queue browse Q"),
    (USAGE, "subscription list --label team"),
    (USAGE, "subscription list --status activ"),
    (USAGE, "subscription list --dialect none"),
    (USAGE, "subscription add a=1 --dialect none"),
    (USAGE, "queue put Q x --expiry never"),
    (USAGE, "serve --port 70000"),
])  # fmt: skip
def test_exit_codes_mean_the_same_in_all_commands(run, monkeypatch, tmp_path, filled, code, arguments):
    monkeypatch.setenv("SELECTROUTE_REGISTRY", filled)
    got, out, err = run(*arguments.format(home=tmp_path).split())
    assert (got, out) == (code, ""), err
    assert err and "Traceback" not in err
    assert not os.path.exists(tmp_path / "none.db")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A database with a subscription and two queues, which stays as it is."""
    url = f"sqlite:///{tmp_path_factory.mktemp('filled')}/r.db"
    with Registry.open(url) as registry:
        registry.import_([b'{"id": "there", "selector": "a = 1"}'])
    SqlQueue.create(url, "Q").close()
    SqlQueue.create(url, "FULL", QueueSettings(max_depth=0)).close()
    yield url
    with Registry.open(url) as registry:
        assert (registry.revision, len(registry)) == (1, 1)
    for name in ("Q", "FULL"):
        with SqlQueue(url, name) as queue:
            assert len(queue) == 0
