"""Random requests to a service against the same calls of a queue in memory."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.queues.rest.headers import headers_of, put_headers
from selectroute.queues.rest.lookup import LookupParams, item_of
from selectroute.registry.registry import Registry
from tests.support.components import NIGHTLY
from tests.support.queue_calls import hex_of, id_of
from tests.unit.service.conftest import service

pytestmark = pytest.mark.slow

LONG = "longer than 24 bytes as text"
IDS = st.sampled_from(["a", "b"])
TEXTS = st.sampled_from(["order-7", hex_of(id_of("c")), hex_of(bytes(24)), LONG])
PUTS = st.fixed_dictionaries(
    {"body": st.sampled_from([b"", b"x", b"\xff\0", "é".encode()])},
    optional={
        "msg_id": IDS.map(id_of),
        "correl_id": IDS.map(id_of),
        "group_id": IDS.map(id_of),
        "msg_seq_number": st.integers(1, 3),
        "offset": st.integers(0, 2),
        "last_in_group": st.booleans(),
        "priority": st.integers(0, 9),
        "persistence": st.booleans(),
        "properties": st.fixed_dictionaries(
            {},
            optional={
                "color": st.sampled_from(["red", "bl;ue", 'gr"een', "gël,b"]),
                "weight": st.integers(0, 3).map(sr.Int),
                "JMSXGroupID": st.just("group"),
                "JMSType": st.just("car"),
            },
        ),
    },
)
LOOKUPS = st.builds(
    LookupParams,
    messageId=st.none() | IDS.map(lambda name: hex_of(id_of(name))),
    correlationId=st.none() | TEXTS | IDS,
    groupId=st.none() | IDS | st.just("group"),
    msgSeqNumber=st.none() | st.integers(1, 3),
    offset=st.none() | st.integers(0, 2),
    msgToken=st.none(),
    dialect=st.none(),
    selector=st.none()
    | st.sampled_from(["color = 'red'", "weight > 1", "JMSType = 'car' AND weight IS NOT NULL", ""]),
)
STEPS = st.lists(
    st.tuples(st.just("put"), PUTS) | st.tuples(st.sampled_from(["get", "get", "browse", "list"]), LOOKUPS),
    max_size=25,
)

_SERVERS_OWN = {"ibm-mq-md-putDate", "ibm-mq-md-putTime", "ibm-mq-md-timestamp", "ibm-mq-md-msgToken"}
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    with Registry.open(f"sqlite:///{path}/r.db") as registry, service(registry) as client:
        yield client


@settings(max_examples=40 if NIGHTLY else 15, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, order=st.sampled_from(["priority", "fifo"]))
def test_random_requests_give_what_a_queue_in_memory_does(client, steps, order):
    name = f"Q{next(_NUMBERS)}"
    assert client.put(f"/v1/queues/{name}", json={"order": order}).status_code == 201
    path = f"/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/{name}/message"
    model = sr.MemoryQueue(sr.QueueSettings(order=order))
    for kind, what in steps:
        if kind == "put":
            fields = dict(what)
            body = fields.pop("body")
            # The ids that a queue makes are its own: without one, one is given.
            fields.setdefault("msg_id", id_of(f"m{next(_NUMBERS)}"))
            if "JMSXGroupID" in fields.get("properties", {}):
                fields.pop("group_id", None)  # the text says which it is
            model.put(body, **fields)
            answer = client.post(path, content=body, headers=dict(put_headers(fields)))
            assert answer.status_code == 201, answer.text
            continue
        if what.selector and what.correlationId == LONG:
            what = what._replace(selector=None)  # it is found by a selector itself
        asked = what.options()
        if kind == "list":
            answer = client.get(f"{path}list", params={**what.body(), "limit": 100})
            found = [_without(one) for one in answer.json()["messages"]]
            assert found == [_without(item_of(message)) for message in _all(model, asked)]
            continue
        answer = client.request("DELETE" if kind == "get" else "GET", path, params=what.body())
        try:
            message = (model.get if kind == "get" else model.browse)(**asked)
        except sr.MQError as error:
            assert (error.reason, answer.status_code) == (2033, 204), answer.text
            continue
        assert (answer.status_code, answer.content) == (200, message.body)
        headers = {key: value for key, value in headers_of(message).items() if key not in _SERVERS_OWN}
        assert {key: answer.headers.get(key) for key in headers} == headers
    assert client.get(f"/v1/queues/{name}").json()["depth"] == model.depth
    assert client.delete(f"/v1/queues/{name}?purge=true").status_code == 204


def _all(queue, asked):
    cursor = queue.cursor()
    while True:
        try:
            yield cursor.next(**asked)
        except sr.MQError:
            return


def _without(item):
    return {key: value for key, value in item.items() if key not in ("timestamp", "msgToken")}
