"""What a caller sends stays data: nothing of it is run, and no secret comes out again."""

import json
import logging
from urllib.parse import quote

import pytest

from tests.unit.service.conftest import CAR, bearer, problem, service

PATH = "/v1/subscriptions"
CANARY = "canary-7f3a91"

HOSTILE = [
    "'; DROP TABLE subscription; --",
    '" OR 1=1 --',
    "../../../../etc/passwd",
    "a\r\nX-Injected: yes",
    '{"event": "request"}\n{"level": "error"}',
    "${jndi:ldap://evil.example/a}",
    "{{7*7}} %s %(asctime)s {0.__class__}",
    "<script>alert(1)</script>",
    "\u202e\u2028",
    "x" * 500,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_data_everywhere(client, add, registry, caplog, text):
    keeper = add("a = 1", name="keeper")
    caplog.set_level(logging.DEBUG)
    quoted = text.replace("'", "''")
    answers = [
        client.post(PATH, json={"selector": f"a = '{quoted}'"}),
        client.post(PATH, json={"name": text}),
        client.post(PATH, json={"topic": text}),
        client.post(PATH, json={"labels": {text: text}}),
        client.post(PATH, json={"dialect": text}),
        client.post(PATH, json={"destination": {"kind": "queue", "name": text}}),
        client.post(PATH, json={text: text}),
        client.post(PATH, json={"labels": {"a": text}}, headers={"X-Anything": "a"}),
        client.get(PATH, params={"name": text, "topic": text, "label": f"a={text}"}),
        client.get(PATH, params={"cursor": text}),
        client.get(f"{PATH}/{quote(text, safe='')}"),
        client.post("/v1/selectors:check", json={"selector": text}),
        client.post("/v1/messages:match", json={"message": {"properties": {text: text}, "topic": text}}),
        client.post(
            f"{PATH}:import", content=json.dumps({"name": text}), headers={"Content-Type": text.strip()}
        )
        if text.isprintable() and text.isascii()
        else client.get(PATH),
    ]
    for answer in answers:
        assert answer.status_code < 500, answer.text
        assert "x-injected" not in answer.headers
        if answer.status_code >= 400:
            problem(answer, answer.status_code, answer.json()["type"].rpartition(":")[2])
    if answers[0].status_code == 201:
        message = {"message": {"properties": {"a": text}}}
        assert answers[0].json()["id"] in client.post("/v1/messages:match", json=message).json()["ids"]
    for one in registry.list(name=text).items:
        assert [item["id"] for item in client.get(PATH, params={"name": text}).json()["items"]] == [one.id]
    assert {**client.get(f"{PATH}/{keeper['id']}").json(), "warnings": []} == keeper
    registry.verify()
    assert_data_in_log(caplog)


def assert_data_in_log(caplog):
    """Check that each line of the log is a request, whatever was sent."""
    for record in caplog.records:
        if record.name == "selectroute.service":
            assert "\n" not in record.message and json.loads(record.message)["event"] == "request"


def test_a_secret_comes_out_nowhere(registry, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    _, secret = registry.tokens.add("admin", name="ops")
    headers = bearer(secret)
    seen = []
    with service(registry, headers=headers) as client:
        requests = [
            client.post(PATH, json={"selector": "a = 1"}, headers={"Idempotency-Key": CANARY}),
            client.post(PATH, json={"selector": "a = 2"}, headers={"Idempotency-Key": CANARY}),
            client.post(PATH, json={"destination": {"kind": "kafka", "password": CANARY}}),
            client.post(PATH, json={"destination": {"kind": "queue", "name": f"{CANARY}/x"}}),
            client.post(PATH, json={"destination": CANARY}),
            client.post(PATH, json={"labels": CANARY}),
            client.post(PATH, json={"dialect": CANARY}),
            client.post(PATH, content=f'{{"a": "{CANARY}', headers={"Content-Type": "application/json"}),
            client.get(PATH, headers={"Authorization": f"Bearer srt_{CANARY}"}),
            client.get(PATH, headers={"Authorization": f"Basic {CANARY}"}),
            client.get(PATH, params={"limit": CANARY, "status": CANARY, "cursor": CANARY}),
            client.get(PATH, headers={"Cookie": CANARY, "Referer": CANARY, "User-Agent": CANARY}),
            client.get(f"{PATH}?token={CANARY}"),
            client.put(f"{PATH}/x", json={}, headers={"If-Match": CANARY}),
            client.post("/v1/messages:match", json={"message": {**CAR, "body": CANARY}}),
            client.post(f"{PATH}:import", content=f'{{"{CANARY[:3]}', headers={"Content-Type": CANARY}),
        ]
        seen += [answer.text + str(answer.headers) for answer in requests]
        for path in (PATH, f"{PATH}:export", "/v1/changes", "/metrics", "/v1/limits", "/readyz"):
            answer = client.get(path)
            assert answer.status_code == 200
            seen.append(answer.text + str(answer.headers))
    seen += [record.getMessage() for record in caplog.records if record.name.startswith("selectroute")]
    for text in seen:
        assert CANARY not in text and secret not in text
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
