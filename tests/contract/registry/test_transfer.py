"""Import and export: all or nothing, each line named, nothing lost on the way."""

from __future__ import annotations

import io
import json
import tempfile

import pytest
from sqlalchemy import inspect

import selectroute as sr
from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec, SubscriptionStatus
from selectroute.registry.authorization import Permission
from selectroute.registry.bulk import checking, helpers, transfer
from selectroute.registry.errors import (
    IdTakenError,
    ImportLineError,
    NameTakenError,
    ReadOnlyError,
    TooLargeError,
)
from selectroute.registry.model import Operation
from selectroute.registry.registry import Registry
from selectroute.selector.limits import Limits
from selectroute.topics.filter import InvalidTopicFilterError, TopicFilter

LARGE = pytest.mark.parametrize(
    "blocks", [(3, 2), (transfer._CHECKED_AT_ONCE, transfer.BLOCK)], indirect=True
)
"""For tests of what may depend on whether lines are in one block."""


@pytest.fixture(autouse=True)
def blocks(request, monkeypatch):
    """Blocks so small that every import has several, all of them checked by this process."""
    at_once, written = getattr(request, "param", (3, 2))
    monkeypatch.setattr(transfer, "_CHECKED_AT_ONCE", at_once)
    monkeypatch.setattr(transfer, "BLOCK", written)
    monkeypatch.setattr(helpers, "ALONE", 1_000)


@pytest.fixture
def helped(monkeypatch, blocks):
    """Helpers from the first block on, also on one core."""
    monkeypatch.setattr(helpers, "ALONE", 0)
    monkeypatch.setattr(helpers.os, "sched_getaffinity", lambda _: range(3))


LINES = [
    '{"id": "a", "selector": "x = 1", "topic": "t/+", "labels": {"k": "v"}, "name": "first"}',
    "",
    '{"id": "b", "selector": "", "status": "paused", "destination": {"kind": "queue", "name": "out"}}',
    '{"selector": "\\"a\\" = 1", "dialect": "jms", "seltype": null}'.replace('\\"a\\"', "a"),
    b'{"id": "c", "selector": "name = \'\xc3\x86\'", "dialect": "ibm-mq", "seltype": "STANDARD"}\n',
]


def numbered(count):
    """Lines of so many subscriptions."""
    return [f'{{"id": "s{number}", "selector": "x = {number}"}}' for number in range(count)]


def check_lines(registry):
    """Check what `LINES` have become; return the subscriptions with an id."""
    a, b, c = (registry.get(id) for id in "abc")
    assert (a.selector, a.topic, dict(a.labels), a.name) == ("x = 1", "t/+", {"k": "v"}, "first")
    assert (b.status, b.seltype, b.destination.name, b.name) == (
        SubscriptionStatus.PAUSED,
        "NONE",
        "out",
        "b",
    )
    assert (c.selector, c.dialect, c.seltype) == ("name = 'Æ'", "ibm-mq", "STANDARD")
    return a, b, c


@LARGE
def test_lines_become_subscriptions_of_one_revision(registry):
    imported = registry.import_(LINES)
    assert (imported.rows, imported.revision, registry.revision, len(registry)) == (4, 1, 1, 4)
    assert registry.list(label="k=v").items == [check_lines(registry)[0]]
    assert {change.revision for change in registry.changes()} == {1}
    registry.verify()


def test_helpers_find_what_one_process_finds(registry, helped):
    assert registry.import_([*LINES, *numbered(200)]).rows == 204
    check_lines(registry)
    assert all(registry.get(f"s{number}").selector == f"x = {number}" for number in range(200))
    logged = [change.id for change in registry.changes(limit=1_000)]
    assert logged[:2] == ["a", "b"] and logged[3:] == ["c", *(f"s{number}" for number in range(200))]


def test_an_invalid_line_is_named_although_a_helper_finds_it(registry, helped):
    lines = numbered(60)
    lines[41] = '{"selector": "x = "}'
    with pytest.raises(ImportLineError) as caught:
        registry.import_(lines)
    assert [one.line for one in caught.value.problems] == [42]
    assert type(caught.value.cause) is sr.InvalidSelectorError and not len(registry)


def test_helpers_know_the_limits_and_the_permission(url, helped):
    lines = [f'{{"id": "s{number}", "topic": "a/{number}"}}' for number in range(60)]
    lines[39] = '{"id": "b", "topic": "b"}'  # of one block with the next
    lines[40] = '{"id": "c", "topic": "a", "selector": "' + "((((x = 1))))" + '"}'
    by = Permission((TopicFilter.parse("a/#"),))
    with Registry.open(url, limits=Limits(nesting=3)) as registry, pytest.raises(ImportLineError) as caught:
        registry.import_(lines, by=by)
    assert [one.line for one in caught.value.problems] == [40, 41]
    assert "permits only topic filters within a/#" in str(caught.value) and "nested" in str(caught.value)


def test_a_helper_that_ends_loses_no_line(registry, helped, monkeypatch):
    made, real = [], helpers._Helper

    def ended(*given):
        made.append(real(*given))
        made[-1]._process.kill()
        return made[-1]

    monkeypatch.setattr(helpers, "_Helper", ended)
    assert registry.import_(numbered(60)).rows == len(registry) == 60
    assert made and all(one._process.poll() is not None for one in made)


def test_without_room_for_a_process_an_import_works_alone(registry, helped, monkeypatch):
    def refused(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(helpers, "_Helper", refused)
    assert registry.import_(numbered(60)).rows == len(registry) == 60


@LARGE
def test_what_is_imported_is_what_would_be_registered(registry):
    for number in range(40):  # more than one needs to be read by its shape
        registry.register(SubscriptionSpec(f"x = {number} AND y = 'b'", topic=f"t/{number}"), id=f"r{number}")
    rows = [json.loads(line) for line in registry.export()]
    registry.import_(json.dumps({**row, "id": row["id"].replace("r", "i"), "name": None}) for row in rows)
    for number in range(40):
        imported, registered = (registry.get(f"{kind}{number}") for kind in "ir")
        assert (imported.seltype, imported.selector) == (registered.seltype, registered.selector)


def test_an_export_is_imported_to_the_same_subscriptions(registry, tmp_path):
    registry.import_(LINES)
    registry.replace("a", SubscriptionSpec("x = 2"))
    with Registry.open(f"sqlite:///{tmp_path}/copy.db") as copy:
        copy.import_(registry.export())
        copy.verify()
        server_made = ("revision", "created", "modified")

        def own(line):
            return {name: value for name, value in json.loads(line).items() if name not in server_made}

        assert [own(line) for line in copy.export()] == [own(line) for line in registry.export()]


def test_an_export_has_what_get_has(registry):
    registry.import_(LINES)
    lines = [json.loads(line) for line in registry.export()]
    assert lines == [registry.get(one["id"]).to_json() for one in lines]
    assert [one["id"] for one in lines] == sorted(one["id"] for one in lines)


def test_an_export_is_of_one_revision_whatever_comes_meanwhile(url):
    with Registry.open(url) as registry, Registry.open(url, verify=False) as other:
        registry.apply(Operation("add", f"s{i}", SubscriptionSpec(f"a = {i}")) for i in range(9))
        lines = registry.export()
        found = [json.loads(next(lines))]
        other.apply(Operation("replace", f"s{i}", SubscriptionSpec("b = 1")) for i in range(9))
        other.register(SubscriptionSpec(), id="s9")
        found += map(json.loads, lines)
        assert [one["selector"] for one in found] == [f"a = {i}" for i in range(9)]


def test_an_export_may_be_of_the_past(registry):
    registry.import_(LINES)
    past = list(registry.export())
    registry.replace("a", SubscriptionSpec("x = 2"))
    registry.remove("b")
    registry.register(SubscriptionSpec(), id="0")
    assert list(registry.export(revision=1)) == past
    assert list(registry.export(revision=0)) == []
    assert list(registry.export(revision=registry.revision)) == list(registry.export())


@LARGE
def test_the_first_lines_that_cannot_be_are_named_together(registry, monkeypatch):
    monkeypatch.setattr(transfer, "_CHECKED_AT_ONCE", 4)
    registry.register(SubscriptionSpec(name="There"), id="there")
    good = numbered(9)
    wrong = ["{", '{"selektor": "a"}', '{"selector": "a = "}', '{"id": "s0"}', '{"selector": "b <> >"}']
    with pytest.raises(ImportLineError) as caught:
        registry.import_([*good[:3], wrong[2], wrong[0], "", *good[3:], wrong[1], wrong[4]])
    found = caught.value
    assert [one.line for one in found.problems] == [4, 5, 13, 14] and found.line == 4
    assert "\nline 13: /selektor: " in str(found)
    with pytest.raises(ImportLineError) as caught:
        registry.import_([*good[:2], wrong[3], wrong[2], *good])
    assert [one.line for one in caught.value.problems] == [3, 4]
    assert [type(one.cause) for one in caught.value.problems] == [IdTakenError, sr.InvalidSelectorError]
    with pytest.raises(ImportLineError) as caught:
        registry.import_([*good, '{"id": "there"}', '{"id": "x", "name": "There"}', '{"id": "y"}'])
    # What is taken already shows when a block of lines is written.
    assert [one.line for one in caught.value.problems] in ([10], [10, 11])
    taken = []

    def many():
        for number in range(100):
            taken.append(number)
            yield wrong[number % 3]

    with pytest.raises(ImportLineError) as caught:
        registry.import_(many())
    assert [one.line for one in caught.value.problems] == list(range(1, 21)) and len(taken) < 30
    assert len(registry) == 1


def test_a_line_that_cannot_be_is_named_and_nothing_is_stored(registry):
    registry.register(SubscriptionSpec(name="There"), id="there")
    good = numbered(30)
    for line, cause, pointer in (
        ("{", InvalidSpecError, ""),
        ("[]", InvalidSpecError, ""),
        ("[" * 100_000, InvalidSpecError, ""),
        (b"\xff{}", InvalidSpecError, ""),
        ('{"selector": "a ="}', sr.InvalidSelectorError, None),
        ('{"selector": "a = 1", "seltype": "NONE"}', InvalidSpecError, "/seltype"),
        ('{"topic": "a/b+"}', InvalidTopicFilterError, None),
        ('{"dialect": "sql"}', InvalidSpecError, "/dialect"),
        ('{"id": "a b"}', InvalidSpecError, "/id"),
        ('{"id": 7}', InvalidSpecError, "/id"),
        ('{"id": "s0"}', IdTakenError, None),
        ('{"id": "there"}', IdTakenError, None),
        ('{"name": "s1"}', NameTakenError, None),
        ('{"name": "There"}', NameTakenError, None),
        ('{"status": "asleep"}', InvalidSpecError, "/status"),
        ('{"status": {}}', InvalidSpecError, "/status"),
        ('{"colour": 1}', InvalidSpecError, "/colour"),
        ('{"labels": {"a": null}}', InvalidSpecError, "/labels/a"),
        ('{"name": "\\ud800"}', InvalidSpecError, ""),
        ('{"destination": {"kind": "mail"}}', InvalidSpecError, "/destination/kind"),
        ('{"destination": {"kind": "kafka"}}', InvalidSpecError, "/destination/name"),
        ('{"selector": "a = \'' + "x" * checking.MAX_LINE + "'\"}", TooLargeError, None),
    ):
        with pytest.raises(ImportLineError) as caught:
            # What is wrong with a line by itself comes before what others have taken.
            later = [] if cause in (IdTakenError, NameTakenError) else ['{"selector": "also wrong ="}']
            registry.import_([*good[:20], line, *good[20:], *later])
        assert caught.value.line == 21
        assert isinstance(caught.value.cause, cause)
        if pointer is not None:
            assert caught.value.cause.pointer == pointer
        assert (registry.revision, len(registry)) == (1, 1)
    registry.verify()
    assert registry.import_(good).revision == 2


def test_more_rows_than_are_taken_are_refused(registry):
    with pytest.raises(TooLargeError, match="at most 5"):
        registry.import_((f'{{"id": "s{number}"}}' for number in range(6)), max_rows=5)
    assert registry.import_((f'{{"id": "s{number}"}}' for number in range(5)), max_rows=5).rows == 5


def test_an_empty_import_makes_no_revision(registry):
    assert registry.import_(["", "\n"]).rows == 0
    assert registry.revision == 0


@LARGE
def test_replacing_takes_the_place_of_what_is_there(registry):
    old = registry.register(SubscriptionSpec("x = 1", labels={"k": "v"}), id="a")
    registry.register(SubscriptionSpec(), id="z")
    with pytest.raises(ImportLineError):
        registry.import_(LINES)
    registry.import_(LINES, mode="replace")
    assert next((c.op, c.id) for c in registry.changes(2)) == ("replace", "a")
    assert registry.get("a").created == old.created and registry.get("a").revision == 3
    assert len(registry) == 5
    registry.import_([*LINES, '{"id": "z", "topic": "q"}'], mode="replace")
    assert registry.get("z").topic == "q"
    registry.verify()


def test_replacing_keeps_a_status_that_the_line_does_not_give(registry):
    for id in "abc":
        registry.register(SubscriptionSpec("x = 1"), id=id)
    registry.pause("b")
    registry.import_([f'{{"id": "{id}", "selector": "x = 2"}}' for id in "abcd"], mode="replace")
    assert [(c.op, c.id) for c in registry.changes(4)] == [
        ("replace", "a"), ("replace", "b"), ("replace", "c"), ("add", "d")
    ]  # fmt: skip
    assert [registry.get(id).status for id in "abcd"] == ["active", "paused", "active", "active"]
    assert registry.get("b").selector == "x = 2"
    registry.resume("b", from_="last-processed")
    assert registry.changes(5)[0].paused_at == 4
    registry.verify()


@LARGE
def test_a_status_that_an_import_changes_is_a_change_of_its_own(registry):
    for id in "ab":
        registry.register(SubscriptionSpec("x = 1"), id=id)
    registry.pause("b")
    lines = ['{"id": "a", "status": "paused"}', '{"id": "b", "status": "active"}']
    assert registry.import_(lines, mode="replace").rows == 2
    changes = registry.changes(3)
    assert [(c.op, c.id, c.resume_from, c.paused_at) for c in changes] == [
        ("replace", "a", None, None),
        ("pause", "a", None, None),
        ("replace", "b", None, None),
        ("resume", "b", "latest", 3),
    ]
    assert [c.subscription.status for c in changes] == ["active", "paused", "paused", "active"]
    assert [registry.get(id) for id in "ab"] == [changes[1].subscription, changes[3].subscription]
    assert registry.import_(lines, mode="replace").revision == 5
    assert [c.op for c in registry.changes(4)] == ["replace", "replace"]
    registry.resume("a", from_="last-processed")
    assert registry.changes(5)[0].paused_at == 4
    registry.verify()


@LARGE
def test_an_import_under_other_limits_keeps_to_them(url):
    lines = [f'{{"selector": "abc = {number}"}}' for number in range(30)]
    with Registry.open(url, limits=sr.Limits(length=7)) as registry:
        with pytest.raises(ImportLineError) as caught:
            registry.import_(lines)
        assert caught.value.line == 11
        assert registry.import_(lines[:10]).rows == 10


def test_progress_is_said_while_reading_and_while_writing(registry):
    said = []
    registry.import_(
        (f'{{"id": "s{number}"}}' for number in range(7)), progress=lambda *numbers: said.append(numbers)
    )
    assert said[0][1] == 0 and said[-1] == (7, 7)


@pytest.mark.parametrize("when", ["made", "written"])
def test_an_import_without_room_for_its_temporary_file_is_refused_and_can_be_made_later(
    registry, monkeypatch, when
):
    real = tempfile.TemporaryFile

    def full(*given, **named):
        if when == "made":
            raise OSError(28, "No space left on device")
        return io.BufferedWriter(io.FileIO("/dev/full", "w"))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(ReadOnlyError, match="no temporary file can be written: No space left on device"):
        registry.import_(['{"id": "a"}'])
    monkeypatch.setattr(tempfile, "TemporaryFile", real)
    assert registry.import_(['{"id": "a"}']).rows == len(registry) == 1


def _described(registry):
    """The indexes that the database has of the tables of subscriptions."""
    with registry._store.reading() as connection:
        indexes = [inspect(connection).get_indexes(table) for table in ("change", "subscription", "label")]
    return [sorted((one["name"], one["unique"], *one["column_names"]) for one in table) for table in indexes]


@LARGE
def test_a_large_import_leaves_the_indexes_as_they_were_also_if_it_fails(registry, monkeypatch):
    monkeypatch.setattr(transfer, "_MANY_ROWS", 1)
    before = _described(registry)
    registry.import_(LINES)
    assert _described(registry) == before
    assert [one.id for one in registry.list(topic="t/+").items] == ["a"]
    registry.import_(['{"id": "later"}'])  # fewer than there are
    registry.import_([f'{{"id": "n{number}"}}' for number in range(9)])
    registry.verify()
    with pytest.raises(ImportLineError) as found:
        registry.import_([*numbered(40), '{"id": "a"}'])
    assert (found.value.problems[0].line, type(found.value.problems[0].cause)) == (41, IdTakenError)
    assert (_described(registry), len(registry)) == (before, 14)
    assert [one.id for one in registry.list(label="k=v").items] == ["a"]
    registry.verify()
