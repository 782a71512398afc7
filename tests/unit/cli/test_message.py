"""``selectroute message match``: the same of a database, a service and a snapshot folder."""

import json
from contextlib import ExitStack
from functools import partial

import pytest

from selectroute.index.jsonl import build_from_lines
from selectroute.index.snapshot_files import publish
from selectroute.registry.registry import Registry
from tests.support.servers.serving import served

LINES = [
    '{"id": "heavy", "topic": "cars/+", "selector": "weight > 2500"}',
    '{"id": "all"}',
    '{"id": "red", "selector": "color = \'red\'"}',
    '{"id": "paused", "status": "paused"}',
]
CAR = '{"topic": "cars/eu", "properties": {"weight": 3000}}'


@pytest.fixture(params=["database", "service", "snapshots"])
def match(request, run, tmp_path, database):
    with ExitStack() as opened:
        if request.param == "snapshots":
            publish(build_from_lines(LINES), tmp_path / "s")
            where = ("--snapshots", tmp_path / "s")
        else:
            registry = opened.enter_context(Registry.open(database))
            registry.import_(LINES)
            is_service = request.param == "service"
            where = ("--registry", opened.enter_context(served(registry)) if is_service else database)
        yield partial(run, "message", "match", *where)


def test_who_gets_a_message(match):
    code, out, err = match(CAR)
    assert (code, err) == (0, "")
    head, *rows = out.splitlines()
    assert head == "2 subscriptions get the message"
    assert sorted(" ".join(row.split()) for row in rows) == [
        "all every topic every message",
        "heavy cars/+ weight > 2500",
    ]
    code, out, _ = match("-", "-o", "ndjson", "--limit", 1, stdin=f'{CAR}\n{{"topic": "x"}}\n')
    first, second = map(json.loads, out.splitlines())
    assert (code, first["line"], first["total"], len(first["ids"])) == (0, 1, 2, 1)
    assert (second["line"], second["total"], second["ids"]) == (2, 1, ["all"])


def test_why_they_get_it(match):
    code, out, _ = match(CAR, "--explain")
    assert code == 0 and "weight is long 3000" in out and "red" not in out
    found = json.loads(match(CAR, "--explain", "-o", "json")[1])
    assert {one["id"] for one in found["explanations"]} == {"all", "heavy"}
    assert all(one["matched"] for one in found["explanations"])


def test_who_misses_it_by_one_condition(match):
    code, out, err = match(CAR, "--near")
    assert (code, err) == (0, "")
    assert [" ".join(row.split()) for row in out.splitlines()[3:]] == [
        "1 other would get it if one condition were otherwise",
        "red every topic color = 'red'",
        "color = 'red' is UNKNOWN; color is NULL",
    ]
    message = '{"topic": "cars/eu", "properties": {"weight": 3, "color": "red"}}'
    found = json.loads(match(message, "--near", "-o", "json")[1])
    (one,) = found["near"]
    assert (one["id"], one["topic"], found["near_complete"]) == ("heavy", "cars/+", True)
    assert one["conditions"] == [{"text": "weight > 2500", "truth": "false", "saw": ["weight is long 3"]}]
    assert "near" not in json.loads(match(CAR, "-o", "json")[1])
    code, out, _ = match('{"topic": "x", "properties": {"color": "red"}}', "--near")
    assert out.splitlines()[-1] == "no others would get it if one condition were otherwise"
    _, out, _ = match('{"topic": "cars/eu"}', "--near", "--limit", 1)
    assert out.splitlines()[-1] == "  there may be more; --limit lists more of them"


def test_conditions_of_which_each_would_do_are_told_apart_from_one(run, tmp_path):
    lines = ['{"id": "either", "selector": "color = \'red\' OR weight > 9"}']
    publish(build_from_lines(lines), tmp_path / "s")
    out = run("message", "match", '{"properties": {"weight": 1}}', "--snapshots", tmp_path / "s", "--near")[1]
    assert [line.strip() for line in out.splitlines()[3:]] == [
        "any of these would do:",
        "color = 'red' is UNKNOWN; color is NULL",
        "weight > 9 is FALSE; weight is long 1",
    ]


def test_one_subscription_is_explained_from_a_snapshot_folder(run, tmp_path):
    lines = ['{"id": "red", "selector": "color = \'red\'", "topic": "cars/+"}']
    publish(build_from_lines(lines), tmp_path / "s")

    def explain(id, *more):
        return run("subscription", "explain", id, CAR, "--snapshots", tmp_path / "s", *more)

    code, out, _ = explain("red")
    assert code == 0 and "red does not get the message" in out and "filter cars/+ matches cars/eu" in out
    assert explain("blue") == (3, "", "selectroute: there is no subscription 'blue'\n")
    code, _, err = explain("red", "--registry", "sqlite:///x")
    assert code == 2 and "not both" in err


@pytest.mark.parametrize("words", [["subscription", "explain", "red"], ["message", "match"]])
def test_without_a_registry_the_error_names_snapshots_too(run, monkeypatch, tmp_path, words):
    monkeypatch.delenv("SELECTROUTE_REGISTRY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    code, _, err = run(*words, CAR)
    assert code == 2 and "give --registry or --snapshots" in " ".join(err.replace("│", " ").split())


def test_a_misspelt_field_of_a_message_is_refused(match):
    code, out, err = match('{"propertys": {}}')
    assert (code, out) == (1, "") and "did you mean `properties`?" in err


def test_nobody_is_exit_code_1(run, tmp_path):
    publish(build_from_lines(['{"id": "red", "selector": "color = \'red\'"}']), tmp_path / "s")
    code, out, _ = run("message", "match", CAR, "--snapshots", tmp_path / "s")
    assert (code, out) == (1, "no subscriptions get the message\n")
