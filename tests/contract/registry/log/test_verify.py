"""Damage: every bit of the database file that is turned gives a named error or no other answer at all."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from sqlalchemy import text

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.log.rows import write_setting
from selectroute.registry.model import Idempotency, Operation
from selectroute.registry.registry import Registry
from selectroute.store.errors import DamagedError, StoreError
from tests.support.components import NIGHTLY


def fill(registry):
    def spec(n):
        return SubscriptionSpec(f"a = {n} AND b = 'x'", topic=f"t/{n % 7}", labels={"k": f"{n % 5}"})

    registry.apply(Operation("add", f"s{number}", spec(number)) for number in range(60))
    for number in range(0, 60, 3):
        registry.replace(f"s{number}", SubscriptionSpec(f"c = {number}", labels={"k": "0"}))
    registry.remove("s1")
    registry.pause("s2")
    registry.register(SubscriptionSpec(), idempotency=Idempotency("me", "key", "digest"))
    registry.streams.note_query("q", source="files", can_replay=True)
    registry.streams.note_batch("q", 1, 2)
    registry.streams.note_reports("q", [{"batch": 1, "busiest": {"s2": 3, "s3": 4}}], {"behind": 1})
    registry.tokens.add("reader", topics=["t/#"])


def told(registry):
    """All answers of a registry, but reports of streams, which have no digests."""
    pages = [
        registry.list(limit=1_000, **filters).items
        for filters in ({}, {"topic": "t/3"}, {"label": "k=2"}, {"status": "paused"}, {"dialect": "jms"})
    ]
    return (
        registry.revision,
        len(registry),
        registry.id,
        pages,
        [registry.get_by_name(one.name) for one in pages[0]],
        registry.changes(limit=10_000),
        registry.tokens.all(),
        list(registry.export(revision=5)),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A closed database in one file, and what it answers."""
    path = tmp_path_factory.mktemp("whole") / "registry.db"
    with Registry.open(f"sqlite:///{path}") as registry:
        fill(registry)
        before = told(registry)
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]
    return path, before


def answers(path: Path):
    with Registry.open(f"sqlite:///{path}") as registry:
        return told(registry)


def test_a_sound_registry_is_verified(registry):
    fill(registry)
    said = []
    verified = registry.verify(lambda done, total: said.append((done, total)))
    assert (verified.revision, verified.subscriptions) == (registry.revision, len(registry) == 60 and 60)
    assert verified.digest == registry.changes(limit=10_000)[-1].digest
    assert said[0][0] == 0 and said[-1][0] == said[-1][1] > 0


def named(whole, tmp_path, damages):
    """How many of these damages, each the bytes of the file, are named; the others change no answer."""
    count = 0
    for number, damaged in enumerate(damages):
        path = tmp_path / f"{number}.db"
        path.write_bytes(damaged)
        try:
            assert answers(path) == whole[1], f"damage {number}"
        except StoreError as error:
            assert str(error)
            count += 1
    return count


@pytest.mark.slow
def test_turned_bits_are_named_or_change_no_answer(whole, tmp_path):
    data, chance = whole[0].read_bytes(), random.Random(6)

    def turned(number):
        place = chance.randrange(len(data)) if number > 40 else number * 3  # the header has its share
        damaged = bytearray(data)
        damaged[place] ^= 1 << chance.randrange(8)
        return damaged

    assert named(whole, tmp_path, map(turned, range(1_000 if NIGHTLY else 100))) > 30


@pytest.mark.parametrize("part", [0.0, 0.0001, 0.01, 0.3, 0.5, 0.9, 0.9999])
def test_a_truncated_file_is_named(whole, tmp_path, part):
    data = whole[0].read_bytes()
    (tmp_path / "short.db").write_bytes(data[: int(len(data) * part)])
    with pytest.raises(DamagedError):
        answers(tmp_path / "short.db")


def test_a_file_of_something_else_is_named(tmp_path):
    path = tmp_path / "x.db"
    path.write_bytes(b"subscriptions, all of them\n" * 400)
    with pytest.raises(DamagedError, match="not a database"):
        answers(path)


def test_zeroed_pages_are_named_or_change_no_answer(whole, tmp_path):
    data = whole[0].read_bytes()
    pages = range(0, len(data), 4_096)
    zeroed = (data[:start] + bytes(4_096) + data[start + 4_096 :] for start in pages)
    assert named(whole, tmp_path, zeroed) > len(pages) // 2


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        ("UPDATE change SET body = replace(body, 'a = 7', 'a = 8') WHERE id = 's7'", "table change"),
        ("DELETE FROM change WHERE revision = (SELECT max(revision) FROM change)", "table change"),
        ("UPDATE counter SET revision = revision + 1", "table counter"),
        ("UPDATE counter SET subscriptions = 5", "table counter"),
        ("UPDATE subscription SET topic_key = 'x' WHERE id = 's7'", "table subscription.*'s7'"),
        ("UPDATE subscription SET seq = seq + 1 WHERE id = 's7'", "table subscription.*'s7'"),
        ("DELETE FROM subscription WHERE id = 's7'", "table subscription has 59 rows of 60"),
        ("UPDATE label SET value = 'z' WHERE id = 's7'", "table label"),
        ("DELETE FROM label WHERE id = 's7'", "table label"),
        ("UPDATE setting SET value = 'z' WHERE name = 'id'", "table setting"),
        ("UPDATE request SET answer = '{}'", "table request"),
        ("UPDATE token SET role = 'admin'", "table token"),
    ],
)
def test_a_row_that_was_altered_is_named(registry, damage, place):
    fill(registry)
    registry.verify()
    with registry._store.writing() as connection:
        connection.execute(text(damage))
    with pytest.raises(DamagedError, match=place):
        registry.verify()


def test_a_view_that_is_behind_its_log_is_named(registry):
    registry.register(SubscriptionSpec("a = 1"), id="s")
    with registry._store.reading() as connection:
        old = connection.execute(text("SELECT * FROM subscription")).one()._asdict()
    registry.replace("s", SubscriptionSpec("a = 2"))
    with registry._store.writing() as connection:
        connection.execute(
            text("UPDATE subscription SET revision = :revision, seq = :seq, seal = :seal WHERE id = :id"), old
        )
    assert registry.get("s").selector == "a = 1"  # a row that was right once: only verify can tell
    with pytest.raises(DamagedError, match="older than the log in the row of 's'"):
        registry.verify()


def test_a_damaged_subscription_is_named_when_it_is_read(registry):
    fill(registry)
    with registry._store.writing() as connection:
        connection.execute(text("UPDATE change SET body = replace(body, 'a = 7', 'a = 8') WHERE id = 's7'"))
    for call in (
        lambda: registry.get("s7"),
        lambda: registry.get_by_name("s7"),
        lambda: registry.list(limit=100),
        lambda: list(registry.export()),
        lambda: registry.replace("s7", SubscriptionSpec()),
    ):
        with pytest.raises(DamagedError, match="'s7'"):
            call()
    assert registry.get("s8").selector == "a = 8 AND b = 'x'"


def test_an_opened_registry_without_verify_is_not_read(whole, tmp_path):
    path = tmp_path / "x.db"
    shutil.copy(whole[0], path)
    with Registry.open(f"sqlite:///{path}") as registry, registry._store.writing() as connection:
        connection.execute(text("UPDATE label SET value = 'z'"))
    with pytest.raises(DamagedError):
        Registry.open(f"sqlite:///{path}")
    Registry.open(f"sqlite:///{path}", verify=False).close()


def test_a_registry_of_another_format_is_not_opened(url):
    with Registry.open(url) as registry, registry._store.writing() as connection:
        write_setting(connection, "format", "1")
    with pytest.raises(DamagedError, match="the registry has format 1, this version reads format 3"):
        Registry.open(url, verify=False)
