"""The contract of a registry: what both databases must do, call by call."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

import selectroute as sr
from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import Destination, SubscriptionSpec, SubscriptionStatus
from selectroute.registry.errors import IdTakenError, NameTakenError, NotFoundError, StaleRevisionError
from selectroute.registry.registry import Registry
from selectroute.store.errors import InvalidUrlError
from selectroute.topics.filter import InvalidTopicFilterError

CAR = SubscriptionSpec("JMSType = 'car' AND weight > 2500", topic="cars/+")


# ---- one subscription


def test_what_is_registered_is_got_back_whole(registry):
    spec = SubscriptionSpec(
        selector="name = 'Ærø 🚗'' \x01'",
        topic="cars/ü/#",
        dialect="ibm-mq",
        name="my cars",
        destination=Destination("queue", "CARS.1"),
        labels={"team": "a/b~c", "ö": ""},
    )
    made = registry.register(spec)
    assert registry.get(made.id) == made == registry.get_by_name("my cars")
    assert (made.revision, made.status, made.seltype) == (1, SubscriptionStatus.ACTIVE, "STANDARD")
    assert (made.selector, made.topic, made.dialect) == (spec.selector, spec.topic, spec.dialect)
    assert (made.destination, made.labels) == (spec.destination, spec.labels)
    assert made.created == made.modified
    assert abs(made.created - datetime.now(UTC)) < timedelta(minutes=5)


def test_a_registry_is_the_same_after_it_was_opened_again(url):
    with Registry.open(url) as registry:
        made = registry.register(CAR, id="car")
        registry.pause("car")
        before = (registry.get("car"), registry.revision, registry.id, registry.changes())
    with Registry.open(url, create=False) as registry:
        assert (registry.get("car"), registry.revision, registry.id, registry.changes()) == before
        assert registry.get("car").created == made.created


def test_a_subscription_without_a_name_has_its_id_for_one(registry):
    made = registry.register(CAR)
    assert made.name == made.id
    assert registry.get_by_name(made.id) == made


def test_ids_are_in_the_order_of_their_milliseconds(registry, monkeypatch):
    ids = []
    for millisecond in (5, 6, 1_000, 1_800_000_000_000):
        monkeypatch.setattr("time.time_ns", lambda now=millisecond: now * 1_000_000)
        ids.append(registry.register(SubscriptionSpec()).id)
    assert ids == sorted(ids)
    assert len({len(one) for one in ids}) == 1


def test_an_id_that_is_taken_is_refused(registry):
    registry.register(CAR, id="car")
    with pytest.raises(IdTakenError, match="'car'"):
        registry.register(CAR, id="car")
    assert registry.revision == 1


@pytest.mark.parametrize("id", ["", "a b", "a/b", "ä", "x" * 129, "a\n"])
def test_an_id_of_other_characters_is_refused(registry, id):
    with pytest.raises(InvalidSpecError) as caught:
        registry.register(CAR, id=id)
    assert caught.value.pointer == "/id"


@pytest.mark.parametrize("id", ["a b", "", "\x00", "\ud800", "x" * 100_000])
def test_there_is_no_subscription_of_an_id_that_cannot_be(registry, id):
    for call in (registry.get, registry.remove, registry.pause, registry.resume):
        with pytest.raises(NotFoundError):
            call(id)


def test_a_name_is_one_subscriptions(registry):
    registry.register(SubscriptionSpec(name="cars"), id="a")
    registry.register(SubscriptionSpec(), id="b")
    for name in ("cars", "b"):
        with pytest.raises(NameTakenError, match=f"'{name}'"):
            registry.register(SubscriptionSpec(name=name))
    with pytest.raises(NameTakenError):
        registry.change("b", {"name": "cars"})
    registry.remove("a")
    assert registry.change("b", {"name": "cars"}).name == "cars"


def test_replacing_gives_another_specification_and_keeps_the_rest(registry):
    old = registry.register(CAR, id="car")
    registry.pause("car")
    new = registry.replace("car", SubscriptionSpec("color = 'blue'", labels={"a": "1"}))
    assert (new.selector, new.topic, new.labels) == ("color = 'blue'", None, {"a": "1"})
    assert (new.status, new.created, new.revision) == (SubscriptionStatus.PAUSED, old.created, 3)
    assert registry.get("car") == new


def test_a_change_that_expects_another_revision_is_refused(registry):
    registry.register(CAR, id="car")
    registry.replace("car", CAR, expected=1)
    calls = {registry.replace: [CAR], registry.change: [{"selector": ""}]}
    calls |= dict.fromkeys((registry.remove, registry.pause, registry.resume), ())
    for call, given in calls.items():
        with pytest.raises(StaleRevisionError, match="is at revision 2, not 1") as caught:
            call("car", *given, expected=1)
        assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert registry.revision == 2


def test_a_patch_changes_the_fields_that_it_names(registry):
    registry.register(SubscriptionSpec("a = 1", topic="x", name="n", labels={"p": "1", "q": "2"}), id="s")
    changed = registry.change("s", {"topic": None, "labels": {"p": None, "r": "3"}, "selector": ""})
    assert (changed.topic, changed.selector, changed.seltype) == (None, "", "NONE")
    assert changed.labels == {"q": "2", "r": "3"}
    assert registry.change("s", {"name": None}).name == "s"
    assert registry.change("s", {"labels": None}).labels == {}


def test_a_patch_ends_although_others_change_the_subscription_all_the_time(registry, monkeypatch):
    registry.register(CAR, id="car")
    read, numbers = registry.get, count()

    def overtaken(id):
        now = read(id)
        registry.replace(id, SubscriptionSpec(f"a = {next(numbers)}"))
        return now

    monkeypatch.setattr(registry, "get", overtaken)
    changed = registry.change("car", {"name": "mine"})
    assert (changed.name, changed.selector) == ("mine", f"a = {next(numbers) - 1}")


@pytest.mark.parametrize(
    ("patch", "pointer"),
    [
        ({"id": "other"}, "/id"),
        ({"status": "paused"}, "/status"),
        ({"color": 1}, "/color"),
        ({"selector": 1}, "/selector"),
        ({"labels": {"a": 1}}, "/labels/a"),
        ({"destination": {"kind": "mail"}}, "/destination/kind"),
        ({"destination": {"kind": "kafka"}}, "/destination/name"),
    ],
)
def test_a_patch_of_what_cannot_be_names_the_field(registry, patch, pointer):
    registry.register(CAR, id="car")
    with pytest.raises(InvalidSpecError) as caught:
        registry.change("car", patch)
    assert caught.value.pointer == pointer
    assert registry.revision == 1


def test_what_is_got_can_be_put_back_as_a_patch(registry):
    one = registry.register(CAR, id="car")
    again = registry.change("car", one.to_json())
    assert again.spec == one.spec


def test_a_removed_subscription_is_gone_and_its_id_is_free(registry):
    old = registry.register(CAR, id="car")
    assert registry.remove("car") == old
    calls = {registry.replace: [CAR], registry.change: [{}]}
    names = ("get", "get_by_name", "remove", "pause", "resume")
    calls |= {getattr(registry, name): [] for name in names}
    for call, given in calls.items():
        with pytest.raises(NotFoundError):
            call("car", *given)
    assert len(registry) == 0
    assert registry.register(CAR, id="car").revision == 3


def test_pausing_twice_and_resuming_twice_change_nothing(registry):
    registry.register(CAR, id="car")
    paused = registry.pause("car")
    assert paused.status is SubscriptionStatus.PAUSED
    assert registry.pause("car") == paused
    resumed = registry.resume("car").subscription
    assert resumed.status is SubscriptionStatus.ACTIVE
    assert registry.resume("car").subscription == resumed
    assert registry.revision == 3


def test_resuming_says_since_when_it_was_paused_and_who_can_read_again(registry):
    registry.register(CAR, id="car")
    registry.streams.note_query("files", source="/in", can_replay=True)
    registry.streams.note_query("socket", source="tcp", can_replay=False, reason="a socket is read once")
    paused = registry.pause("car")
    registry.replace("car", SubscriptionSpec("a = 1"))
    resumed = registry.resume("car", from_="last-processed")
    assert [(b.query, b.can_replay, b.reason) for b in resumed.backfill] == [
        ("files", True, None),
        ("socket", False, "a socket is read once"),
    ]
    change = registry.changes()[-1]
    assert (change.op, change.resume_from, change.paused_at) == ("resume", "last-processed", paused.revision)
    registry.pause("car")
    assert registry.resume("car").backfill == []
    with pytest.raises(InvalidSpecError):
        registry.resume("car", from_="yesterday")


def test_nothing_of_what_is_refused_is_stored(registry):
    bad = [
        (SubscriptionSpec("a ="), sr.InvalidSelectorError),
        (SubscriptionSpec("a = 1", topic="a/b+"), InvalidTopicFilterError),
        (SubscriptionSpec("a = 1", dialect="sql"), InvalidSpecError),
        (SubscriptionSpec(destination=Destination("mail", "x")), InvalidSpecError),
    ]
    registry.register(CAR, id="car")
    for spec, error in bad:
        for write in (registry.register, lambda spec: registry.replace("car", spec)):
            with pytest.raises(error):
                write(spec)
    assert (registry.revision, len(registry), len(registry.changes())) == (1, 1, 1)
    registry.verify()


def test_a_selector_within_the_registrys_own_limits_is_registered(url):
    long = " OR ".join(f"a{i} = {i}" for i in range(2_000))
    with Registry.open(url) as registry, pytest.raises(sr.InvalidSelectorError) as caught:
        registry.register(SubscriptionSpec(long))
    assert caught.value.kind == "too-long"
    with Registry.open(url, limits=sr.Limits(length=100_000)) as registry:
        assert registry.register(SubscriptionSpec(long)).selector == long
    with Registry.open(url, limits=sr.Limits(length=5)) as registry:
        with pytest.raises(sr.InvalidSelectorError):
            registry.register(SubscriptionSpec("abc = 1"))
        assert registry.list().items[0].selector == long  # what was accepted stays


@pytest.mark.parametrize("text", ["'; DROP TABLE change; --", "a\\' OR 1=1", "%_", "\x1b[31m"])
def test_text_with_a_meaning_to_databases_has_none(registry, text):
    literal = text.replace("'", "''")
    made = registry.register(SubscriptionSpec(f"a = '{literal}'", topic=text.replace("+", "")), id="a")
    assert registry.get("a") == made
    assert registry.list(topic=made.topic).items == [made]
    with pytest.raises(NotFoundError):
        registry.get(text)
    with pytest.raises(NotFoundError):
        registry.get_by_name(text)
    registry.verify()


# ---- opening


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://a/b", "sqlite://", "sqlite:///:memory:", "oracle://x"]
)
def test_a_url_of_no_registry_is_refused(url):
    with pytest.raises(InvalidUrlError):
        Registry.open(url)


@pytest.mark.slow
@pytest.mark.xdist_group("postgres")
def test_a_registry_that_is_none_is_not_made_unasked(tmp_path, postgres):
    with pytest.raises(InvalidUrlError, match="there is no database"):
        Registry.open(f"sqlite:///{tmp_path}/x.db", create=False)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidUrlError, match="has no table"):
        Registry.open(postgres(), create=False)


def test_many_that_open_a_new_registry_at_once_open_the_same(url):
    def opened(_: int) -> str:
        with Registry.open(url) as registry:
            return registry.id

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(opened, range(6)))) == 1
