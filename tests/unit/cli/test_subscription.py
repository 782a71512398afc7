"""``selectroute subscription``: the same on a database and on a service, and with which exit code."""

import getpass
import json
import threading
import time
from functools import partial

import pytest

from selectroute.registry.registry import Registry
from tests.support.servers.serving import served

CAR = "JMSType = 'car' AND weight > 2500"
LIGHT = '{"topic": "cars/eu", "headers": {"JMSType": "car"}, "properties": {"weight": 5}}'


@pytest.fixture
def sub(run_on_either):
    """A subcommand of `subscription`, on the registry."""
    return partial(run_on_either, "subscription")


def test_the_history_says_when_and_who(sub, request):
    sub("add", "a = 1", "--id", "s")
    sub("pause", "s")
    sub("remove", "s")
    code, out, err = sub("history", "s")
    who = "anybody" if "service" in request.node.name else f"user {getpass.getuser()}"
    assert (code, err) == (0, "")
    assert [line.split()[3] for line in out.splitlines()] == ["remove", "pause", "add"]
    assert all(who in line for line in out.splitlines()) and out.endswith("a = 1\n")
    assert [one["actor"] for one in json.loads(sub("history", "s", "-o", "json")[1])] == [who] * 3
    assert sub("history", "nobody")[0] == 3


def test_a_subscription_lives_from_add_to_remove(sub):
    code, out, err = sub("add", CAR, "--topic", "cars/+", "--id", "heavy", "--label", "team=eu")
    assert (code, err) == (0, "")
    assert out.splitlines()[:5] == [
        "heavy: active, revision 1",
        "  topic         cars/+",
        f"  selector      {CAR}",
        "  dialect       jms",
        "  destination   none",
    ]
    assert "  label         team=eu" in out
    code, out, _ = sub("get", "heavy", "-o", "json")
    found = json.loads(out)
    assert (code, found["selector"], found["labels"]) == (0, CAR, {"team": "eu"})
    assert found["effective_from"] == []
    code, out, _ = sub("replace", "heavy", "weight > 3000", "--topic", "", "--label", "team=", "-o", "ndjson")
    found = json.loads(out)
    assert (code, found["revision"], found["selector"], found["topic"]) == (0, 2, "weight > 3000", None)
    assert found["labels"] == {}
    assert sub("pause", "heavy")[1].startswith("heavy: paused, revision 3\n")
    code, out, _ = sub("resume", "heavy", "--from", "last-processed")
    assert code == 0 and out.startswith("heavy: active, revision 4\n")
    assert out.endswith("  backfill      no query has reported to this registry yet\n")
    assert sub("remove", "heavy", "--if-revision", "4")[1].startswith("heavy: removed\n")
    assert sub("get", "heavy")[0] == 3


def test_a_destination_is_given_as_kind_and_name(sub):
    assert sub("add", "a = 1", "--id", "one", "--destination", "queue:ORDERS")[0] == 0
    assert "queue:ORDERS" in sub("get", "one")[1] and sub("replace", "one", "a = 2")[0] == 0
    assert "queue:ORDERS" in sub("get", "one")[1]
    assert sub("replace", "one", "a = 2", "--destination", "kafka:cars?grouping=message")[0] == 0
    assert "kafka:cars?grouping=message" in sub("get", "one")[1]


def test_each_refusal_has_its_exit_code(sub):
    assert sub("add", "a = 1", "--id", "one", "--name", "first")[0] == 0
    assert sub("add", "a = 1", "--id", "one")[0] == 4
    assert sub("add", "a = 1", "--name", "first")[0] == 4
    code, _, err = sub("replace", "one", "a = 2", "--if-revision", "7")
    assert code == 4 and "revision 1, not 7" in err
    for verb in ("get", "remove", "pause", "resume", "replace"):
        more = ("a = 1",) if verb == "replace" else ()
        code, _, err = sub(verb, "nobody", *more)
        assert code == 3 and "nobody" in err and "caller" not in err
        assert sub(verb, "--by-name", "nobody", *more)[0] == 3 and sub(verb)[0] == 2
    for code, *arguments in (
        (2, "replace", "one"),
        (2, "add", "a = 1", "--label", "none"),
        (1, "add", "a = 1", "--topic", "a/b+"),
        (2, "add", "a = 1", "--destination", "kafka"),
        (1, "add", "a = 1", "--destination", "kafka:cars?grouping=both"),
        (1, "add", "a = 1", "--destination", "files:mine"),
        (1, "add", "a = 1", "--destination", "queue:A B"),
        (3, "explain", "nobody", LIGHT),
        (3, "import", "/nowhere.jsonl"),
    ):
        found, out, err = sub(*arguments)
        assert (found, out) == (code, "") and err and "Traceback" not in err, arguments


def test_an_invalid_selector_is_shown_as_by_selector_check(sub, run):
    sub("add", "a = 1", "--id", "one")
    for arguments in (("add", "a == 1"), ("replace", "one", "a == 1")):
        assert sub(*arguments) == (5, "", "selectroute: " + run("selector", "check", "a == 1")[1])


def test_a_name_stands_for_an_id_where_it_is_said(sub):
    sub("add", "a = 1", "--id", "one", "--name", "my cars")
    assert json.loads(sub("get", "--by-name", "my cars", "-o", "json")[1])["id"] == "one"
    code, out, _ = sub("replace", "--by-name", "my cars", "a = 2", "-o", "json")
    assert (code, json.loads(out)["selector"]) == (0, "a = 2")
    assert sub("remove", "--by-name", "my cars")[0] == 0


def test_lists_go_on_where_they_ended(sub):
    for number in range(5):
        sub("add", f"a = {number}", "--id", f"s{number}", "--label", f"odd={number % 2}")
    code, out, err = sub("list", "--limit", "2")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == ["id", "s0", "s1"]
    cursor = err.rstrip().removeprefix("there are more: --cursor ")
    code, out, err = sub("list", "--limit", "3", "--cursor", cursor, "-o", "json")
    assert (code, err) == (0, "") and [one["id"] for one in json.loads(out)] == ["s2", "s3", "s4"]
    rows = sub("list", "--all", "--label", "odd=1", "-o", "ndjson")[1].splitlines()
    assert [json.loads(row)["id"] for row in rows] == ["s1", "s3"]
    assert sub("list", "--status", "paused", "-o", "json")[1] == "[]\n"


def test_what_was_exported_is_imported(sub, run, tmp_path):
    lines = "".join(f'{{"id": "s{number}", "selector": "a = {number}"}}\n' for number in range(30))
    assert sub("import", "-", stdin=lines) == (0, "revision 1: 30 subscriptions\n", "")
    code, out, err = sub("export")
    assert (code, err) == (0, "") and len(out.splitlines()) == 30
    other = ("--registry", f"sqlite:///{tmp_path}/other.db")
    code, shown, _ = run("subscription", "import", "-", "-o", "json", *other, stdin=out)
    assert (code, json.loads(shown)) == (0, {"rows": 30, "revision": 1})
    assert sub("import", "-", stdin=lines)[0] == 4
    assert sub("import", "-", "--mode", "replace", stdin=lines)[:2] == (0, "revision 2: 30 subscriptions\n")
    assert sub("export", "--revision", "1")[1] == out


def test_a_line_of_an_import_that_cannot_be_is_named_and_nothing_is_stored(sub):
    code, out, err = sub("import", "-", stdin='{"id": "a"}\n{"id": "b", "selector": "a == 1"}\n')
    assert (code, out) == (5, "")
    assert err.startswith("selectroute: <stdin>:2: unknown-operator") and "\n  a == 1\n    ^^\n" in err
    assert sub("list", "-o", "json")[1] == "[]\n"


def test_why_a_message_is_not_delivered_is_explained(sub):
    sub("add", CAR, "--topic", "cars/+", "--id", "heavy")
    code, out, err = sub("explain", "heavy", LIGHT)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("heavy does not get the message, at revision 1: its selector is false")
    assert "  topic filter cars/+ matches cars/eu" in lines and "  FALSE     weight > 2500" in lines
    got = LIGHT.replace("5", "2501")
    assert sub("explain", "heavy", got)[1].splitlines()[0] == "heavy gets the message, at revision 1"
    code, out, _ = sub("explain", "heavy", got, "-o", "json")
    found = json.loads(out)
    assert found["matched"] is True and found["selector"]["truth"] == "true"
    code, out, _ = sub("explain", "heavy", "-", stdin=f"{LIGHT}\n\n{LIGHT.replace('cars/eu', 'ships')}\n")
    assert "heavy does not get line 3, at revision 1: its topic filter does not match" in out
    sub("pause", "heavy")
    assert "it is paused" in sub("explain", "heavy", LIGHT)[1]


def test_waiting_tells_the_first_batch_that_used_a_change(sub, database):
    sub("add", CAR, "--id", "heavy")
    code, out, err = sub("replace", "heavy", "a = 1", "--wait", "0.3", "-o", "json")
    assert (code, json.loads(out)["effective_from"]) == (1, [])
    assert "no batch that used revision 2 was reported yet" in err
    with Registry.open(database) as opened:
        opened.streams.note_query("stream", source="files", can_replay=True)
        opened.streams.note_batch("stream", 7, 2)
    code, out, _ = sub("get", "heavy", "--wait", "5")
    assert code == 0 and "  effective from batch 7 of query stream\n" in out
    effective = json.loads(sub("get", "heavy", "-o", "json")[1])["effective_from"]
    assert effective == [{"query": "stream", "batch": 7}]
    sub("pause", "heavy")
    out = sub("resume", "heavy", "--from", "last-processed")[1]
    assert out.endswith("  backfill      query stream delivers what it missed\n")


def test_a_service_waits_for_a_batch_itself(run, database, monkeypatch):
    """Five requests a second would be a line of its log each."""
    with Registry.open(database) as opened, served(opened) as url:
        monkeypatch.setenv("SELECTROUTE_REGISTRY", url)
        opened.import_([b'{"id": "heavy"}'])
        asked, real = [], opened.streams.effective_from
        monkeypatch.setattr(
            opened.streams, "effective_from", lambda revision: asked.append(1) or real(revision)
        )
        later = threading.Timer(2, lambda: opened.streams.note_batch("stream", 7, 1))
        later.start()
        code, out, _ = run("subscription", "get", "heavy", "--wait", "60")
        later.join()
        assert code == 0 and "  effective from batch 7 of query stream\n" in out
        assert len(asked) == 3  # it is read, then waited for: that request looks twice
        assert run("subscription", "get", "heavy", "--wait", "0")[0] == 0
        assert run("subscription", "replace", "heavy", "a = 1", "--wait", "0.2")[0] == 1


def test_who_waits_for_what_is_changed_meanwhile_is_told_at_once(run, database, monkeypatch):
    with Registry.open(database) as opened, served(opened) as url:
        monkeypatch.setenv("SELECTROUTE_REGISTRY", url)
        opened.import_([b'{"id": "heavy"}'])
        later = threading.Timer(1, lambda: (opened.pause("heavy"), opened.streams.note_batch("stream", 7, 2)))
        later.start()
        begun = time.monotonic()
        code, _, err = run("subscription", "get", "heavy", "--wait", "60")
        later.join()
        assert code == 1 and "no batch that used revision 1 was reported yet" in err
        assert time.monotonic() - begun < 30


def test_what_a_terminal_would_obey_is_not_printed(sub):
    sub("add", "a = '\x1b[31mred'", "--id", "red", "--topic", "a/\x1b]0;b")
    for arguments in (("get", "red"), ("list",), ("explain", "red", '{"topic": "\\u001b[2J"}')):
        code, out, _ = sub(*arguments)
        assert code == 0 and "\x1b" not in out


def test_a_long_selector_comes_by_standard_input(sub):
    text = " OR ".join(f"a = {number}" for number in range(500))
    code, out, _ = sub("add", "-", "-o", "json", stdin=f"{text}\n")
    assert code == 0 and json.loads(out)["selector"] == text


# ---- without a registry


def test_a_registry_that_is_not_there_is_only_made_by_what_adds(run, database):
    code, _, err = run("subscription", "list", "--registry", database)
    assert code == 3 and "there is no database" in err
    assert run("subscription", "add", "a = 1", "--registry", database)[0] == 0
    assert run("subscription", "list", "--registry", database)[0] == 0


def test_the_help_of_serve_says_who_may_call(run):
    out = " ".join(run("serve", "--help")[1].split())
    assert "`limits`" in out and "selectroute token create" in out


def test_limits_of_the_settings_hold_for_commands_on_a_database(run, database, monkeypatch, tmp_path):
    monkeypatch.setenv("SELECTROUTE_REGISTRY", database)
    long = " OR ".join(f"a{i} = {i}" for i in range(1_500))
    assert run("subscription", "add", long, "--id", "long")[0] == 5
    monkeypatch.setenv("SELECTROUTE_LIMITS__SELECTOR_LENGTH", "50000")
    assert run("subscription", "add", long, "--id", "long")[0] == 0
    monkeypatch.delenv("SELECTROUTE_LIMITS__SELECTOR_LENGTH")
    config = tmp_path / "config.toml"
    config.write_text("[limits]\nselector_length = 60000\n")
    monkeypatch.setenv("SELECTROUTE_CONFIG", str(config))
    assert run("subscription", "replace", "long", f"{long} OR b = 1")[0] == 0
    monkeypatch.delenv("SELECTROUTE_CONFIG")
    assert json.loads(run("subscription", "get", "long", "-o", "json")[1])["selector"] == f"{long} OR b = 1"
    assert run("subscription", "replace", "long", f"{long} OR b = 2")[0] == 5


def test_what_is_registered_is_checked_as_by_selector_check(sub):
    sentence = "this compares two properties; for a string write color = 'red'"
    code, out, err = sub("add", "JMSType = 'car' AND color = red", "--id", "one", "-o", "json")
    assert (code, err) == (0, f"warning: compares-properties: {sentence}\n")
    assert json.loads(out)["id"] == "one"
    assert sub("replace", "one", CAR)[2] == ""
    assert sub("replace", "one", "JMSType = 'bus' AND color = red")[2].startswith("warning: compares-prop")
    assert sub("replace", "one", "--topic", "cars/+")[2] == ""


def test_the_lines_of_an_import_that_cannot_be_are_named_with_the_file(sub, tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text('{"id": "a"}\n{\n\n{"id": "b", "selector": "a == 1"}\n{"selektor": "x"}\n')
    code, out, err = sub("import", file)
    assert (code, out) == (1, "")
    lines = [line for line in err.splitlines() if str(file) in line]
    assert lines[0] == f"selectroute: 3 lines of {file} are invalid"
    assert [line.partition(" ")[0] for line in lines[1:]] == [f"{file}:{line}:" for line in (2, 4, 5)]
    assert "not valid JSON" in lines[1] and "did you mean `selector`?" in lines[3]
    assert err.splitlines()[-1] == "nothing was imported"
    assert "no subscriptions" in sub("list")[1] + sub("list")[2]
    code, _, err = sub("import", "-", stdin="{\n" * 50)
    assert code == 1 and "at least 20 lines of <stdin> are invalid" in err
    assert "<stdin>:20:" in err and "<stdin>:21:" not in err


def test_an_import_says_how_many_selectors_are_probably_mistaken(sub):
    good = json.dumps({"id": "good", "selector": CAR})
    bad = [json.dumps({"selector": f"JMSType = 'x{n}' AND color = red"}) for n in range(7)]
    code, out, err = sub("import", "-", stdin="\n".join([good, *bad]))
    assert (code, out) == (0, "revision 1: 8 subscriptions\n")
    lines = [line for line in err.splitlines() if "importing" not in line]
    assert lines[0] == "warning: 7 selectors are probably mistaken:"
    assert lines[1].startswith("  line 2: compares-properties: this compares two properties")
    assert len(lines) == 7 and lines[-1] == "  and 2 more; see `selectroute selector check`"
    assert "warning" not in sub("import", "-", "--mode", "replace", stdin=good)[2]
