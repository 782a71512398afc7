"""Queues as a whole over HTTP: made, described, deleted."""

from datetime import datetime

import pytest
from sqlalchemy import event

from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.queue import SqlQueue, SqlQueues
from tests.unit.service.conftest import problem, service

PATH = "/v1/queues"
DEFAULTS = {
    "order": "priority", "default_priority": 4, "default_persistence": False, "max_depth": None,
    "max_message_length": 4_194_304, "dialect": "ibm-jms",
}  # fmt: skip
EMPTY = {"depth": 0, "oldest": None, "waiting": 0}


def test_a_queue_is_made_described_and_deleted(client):
    assert client.get(PATH).json() == {"items": []}
    made = client.put(f"{PATH}/ORDERS", json={"order": "fifo", "max_depth": 5})
    assert (made.status_code, made.headers["location"]) == (201, f"{PATH}/ORDERS")
    described = {"name": "ORDERS", **DEFAULTS, "order": "fifo", "max_depth": 5, **EMPTY}
    assert made.json() == client.get(f"{PATH}/ORDERS").json() == described
    assert client.get(PATH).json() == {"items": [{"name": "ORDERS"}]}
    assert client.delete(f"{PATH}/ORDERS").status_code == 204
    assert client.get(PATH).json() == {"items": []}
    for method in ("GET", "DELETE"):
        assert problem(client.request(method, f"{PATH}/ORDERS"), 404, "queue-not-found")["mqrc"] == 2085


def test_the_same_put_again_changes_nothing_and_another_is_refused(client):
    assert client.put(f"{PATH}/A").status_code == 201
    again = client.put(f"{PATH}/A", json=DEFAULTS)
    assert (again.status_code, again.json()) == (200, {"name": "A", **DEFAULTS, **EMPTY})
    found = problem(client.put(f"{PATH}/A", json={"max_depth": 7}), 409, "queue-taken")
    assert found["mqrc"] == 2100 and found["detail"].endswith("other settings: max_depth")
    assert client.get(f"{PATH}/A").json()["max_depth"] is None


@pytest.mark.parametrize("name", ["A.b_c", "A/b", "100%", "a..b", "v1/queues/A"])
def test_a_name_may_have_what_ibm_mq_allows(client, name):
    made = client.put(f"{PATH}/{name.replace('%', '%25').replace('/', '%2F')}")
    assert (made.status_code, made.json()["name"]) == (201, name)
    assert client.get(made.headers["location"]).json()["name"] == name


@pytest.mark.parametrize("name", ["a b", "ä", "a'b", "x" * 49, "a%00b", "%2B"])
def test_what_is_no_name_is_refused_when_it_is_made_and_else_not_there(shared, name):
    assert problem(shared.put(f"{PATH}/{name}"), 422, "invalid-queue")["mqrc"] == 2152
    assert problem(shared.get(f"{PATH}/{name}"), 404, "queue-not-found")["mqrc"] == 2085
    assert problem(shared.delete(f"{PATH}/{name}"), 404, "queue-not-found")["mqrc"] == 2085


def test_settings_that_cannot_be_are_refused(shared):
    wrong = {"order": "random", "default_priority": 10, "max_depth": -1, "dialect": "sql", "colour": "red"}
    for body in ([], {"max_depth": 1.5}, *({name: value} for name, value in wrong.items())):
        problem(shared.put(f"{PATH}/A", json=body), 422, "invalid-body")
        assert shared.get(PATH).json() == {"items": []}, body


def test_a_queue_with_messages_is_deleted_only_when_they_may_go_too(client):
    client.put(f"{PATH}/A")
    queue = client.app.state.service.queues.open("A")
    queue.put(b"a")
    assert client.get(f"{PATH}/A").json()["depth"] == 1
    assert problem(client.delete(f"{PATH}/A"), 409, "queue-not-empty")["mqrc"] == 2055
    unit = queue.unit()
    queue.get(syncpoint=unit)
    assert problem(client.delete(f"{PATH}/A?purge=true"), 409, "queue-not-empty")["mqrc"] == 2055
    unit.backout()
    assert client.delete(f"{PATH}/A?purge=true").status_code == 204


def test_the_oldest_message_is_the_one_that_came_first_whatever_its_priority(registry):
    now = iter(range(1_000, 9_000))
    with service(registry) as client:
        queues = client.app.state.service.queues
        queues._clock = lambda: next(now)
        client.put(f"{PATH}/A")
        client.put(f"{PATH}/B", json={"order": "fifo"})
        queue, other = queues.open("A"), queues.open("B")
        times = [queue.put(priority=priority).put_time for priority in (3, 0, 9, 3)]
        expired = queue.put(expiry=1).put_time

        def oldest(name="A"):
            text = client.get(f"{PATH}/{name}").json()["oldest"]
            return None if text is None else datetime.fromisoformat(text)

        assert oldest() == queue.oldest == times[0] and other.oldest is None
        queue.get(msg_token=queue.listed(2)[1].descriptor.msg_token)
        assert oldest() == times[1]
        unit = queue.unit()
        queue.get(selector="JMSPriority = 0", syncpoint=unit)
        assert oldest() == times[2], "those in units are not available"
        unit.backout()
        assert oldest() == times[1]
        queue.move("B")
        assert oldest("A") is None and expired, "one that has expired is not available either"
        assert oldest("B") == other.oldest == times[2], "the first that was moved"


def test_the_oldest_message_is_found_without_a_scan(registry):
    with SqlQueue.create(registry.url, "A") as queue:
        for number in range(50):
            queue.put(priority=number % 3)
        asked = []
        engine = queue._store._store.engine
        event.listen(engine, "before_cursor_execute", lambda *given: asked.append(given[2:4]))
        assert queue.oldest is not None
        lookups = [one for one in asked if "queue_message" in one[0]]
        assert len(lookups) == 4, "one for each priority, and one that finds none"
        with engine.connect() as connection:
            for statement, values in lookups:
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
                assert "SEARCH queue_message" in plan[0].detail and "place>?" in plan[0].detail
                assert len(plan) == 1, "it is not sorted"


def test_queues_are_in_the_registrys_database_or_where_it_is_said(registry, tmp_path):
    with service(registry) as client:
        client.put(f"{PATH}/A")
    other = f"sqlite:///{tmp_path}/queues.db"
    with service(registry, queues=other) as client:
        assert client.get(PATH).json() == {"items": []}
        assert not (tmp_path / "queues.db").exists()
        client.put(f"{PATH}/B")
    for url, names in ((other, ["B"]), (registry.url, ["A"])):
        with SqlQueues(url) as queues:
            assert queues.names() == names


def test_a_queue_that_another_process_deleted_and_made_anew_is_the_new_one(client, registry):
    client.put(f"{PATH}/A")
    assert client.get(f"{PATH}/A").json()["max_depth"] is None
    with SqlQueues(registry.url) as queues:
        queues.delete("A")
    problem(client.get(f"{PATH}/A"), 404, "queue-not-found")
    SqlQueue.create(registry.url, "A", QueueSettings(max_depth=3)).close()
    assert client.get(f"{PATH}/A").json()["max_depth"] == 3
