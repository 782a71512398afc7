"""Limits, metrics, health and readiness."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import time

import pytest

from selectroute.registry.errors import UnavailableError
from selectroute.service.limits import ServiceLimits
from tests.unit.service.conftest import problem, service


def values(client):
    text = client.get("/metrics").text
    return {name: float(value) for name, value in re.findall(r"^(\w+(?:{.*})?) (\S+)$", text, re.MULTILINE)}


def test_all_limits_are_shown(registry):
    with service(registry, limits=ServiceLimits(page=7)) as client:
        found = client.get("/v1/limits").json()
    assert found["page"] == 7
    assert found["selector_length"] == 10_240
    assert found["selector_nesting"] == 255
    assert found["selector_items"] == 10_000
    assert found["message_properties"] == 1_000
    assert found["property_name_length"] == 4_095
    assert found["body_bytes"] == 1 << 20
    assert set(found) == set(ServiceLimits.model_fields)


def test_metrics_follow_the_registry(client, add):
    add("a = 1")
    add("a + b > 1")
    client.post("/v1/messages:match", json={"message": {}})
    found = values(client)
    assert found["selectroute_registry_revision"] == 2
    assert found["selectroute_registry_lag_seconds"] == 0
    assert found["selectroute_registry_publisher"] == 1
    assert found["selectroute_index_subscriptions"] == 2
    scanned = {name: count for name, count in found.items() if "index_scan_subscriptions" in name}
    reason = "it has no equality: it does not compare one property with a constant"
    assert scanned == {f'selectroute_index_scan_subscriptions{{reason="{reason}"}}': 1}
    assert found["selectroute_index_bytes"] > 0
    assert found["selectroute_match_seconds_count"] == 1


def test_a_service_is_ready_once_a_revision_is_published(client, add):
    assert client.get("/healthz").json() == {"status": "ok"}
    made = add()
    until = time.monotonic() + 30
    while (found := client.get("/readyz").json()).get("published") != made["revision"]:
        assert time.monotonic() < until, found
    assert found == {"status": "ready", "revision": 1, "published": 1}


def test_a_registry_that_cannot_be_read_makes_it_unready(client, registry, monkeypatch):
    def fails():
        raise UnavailableError("the database cannot be reached at secret.example")

    monkeypatch.setattr(type(registry), "revision", property(lambda _: fails()))
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "reason": "the registry cannot be read"}
    assert client.get("/healthz").status_code == 200


def test_a_folder_that_cannot_be_published_to_is_said(registry, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with service(registry, snapshots=tmp_path / "file") as client:
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["reason"] == "no revision is published yet"
        assert client.post("/v1/subscriptions", json={}).status_code == 201


def test_no_state_of_the_service_reads_the_log(registry, monkeypatch, tmp_path):
    # One revision may be an import of a million lines.
    (tmp_path / "file").write_text("nothing is ever published to it")
    monkeypatch.setattr(registry, "changes", None)
    with service(registry, snapshots=tmp_path / "file") as client:
        assert client.post("/v1/subscriptions", json={}).status_code == 201
        until = time.monotonic() + 30
        while not values(client)["selectroute_registry_lag_seconds"] > 0:
            assert time.monotonic() < until
        assert client.get("/readyz").status_code == 503


def test_a_database_that_is_replaced_is_written_no_more_until_it_is_back(client, add, tmp_path):
    add("a = 1")
    path = tmp_path / "subscriptions.db"
    path.rename(tmp_path / "away")
    problem(client.post("/v1/subscriptions", json={}), 503, "unavailable")
    found = client.get("/readyz")
    assert (found.status_code, found.json()["status"]) == (503, "not ready")
    assert "the database file is gone" in found.json()["reason"]
    assert not path.exists()
    (tmp_path / "away").rename(path)
    assert client.post("/v1/subscriptions", json={}).status_code == 201


class TestPages:
    """What a browser is shown: text and links, no script, nothing from elsewhere."""

    @pytest.mark.parametrize("path", ["/", "/docs"])
    def test_a_page_runs_no_script_and_asks_nobody_else(self, client, path):
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        (style,) = re.findall("<style>(.*?)</style>", answer.text)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
        assert "<script" not in answer.text and "http" not in re.sub("<pre>.*?</pre>", "", answer.text)
        links = re.findall('(?:href|src)="(.*?)"', answer.text)
        assert links and all(link.startswith(("/", "#")) for link in links)
        for link in links:
            if link.startswith("/"):
                assert client.get(link).status_code in (200, 503)  # perhaps it is not ready yet
            else:
                assert f'id="{link[1:]}"' in answer.text

    def test_the_first_one_has_counts_for_those_who_may_see_them(self, registry):
        registry.import_([b'{"id": "a"}', b'{"id": "b"}'])
        with service(registry) as client:
            assert "<th>Subscriptions<td>2" in client.get("/").text
            client.put("/v1/queues/Q")
            assert "<th>Queues<td>1" in client.get("/").text
            assert "<td>" not in client.get("/", headers={"Host": "evil.example"}).text
        _, admin = registry.add_token("reader")
        _, limited = registry.add_token("reader", topics=["t/#"])
        with service(registry) as client:
            assert "<td>" not in client.get("/").text
            for secret, told in ((admin, True), (limited, False), ("srt_" + "x" * 43, False)):
                answer = client.get("/", headers={"Authorization": f"Bearer {secret}"})
                assert (answer.status_code, "<th>Revision<td>1" in answer.text) == (200, told)

    def test_the_docs_have_every_call_with_its_summary_and_example(self, client):
        page = html.unescape(client.get("/docs").text)
        for path, operations in client.get("/openapi.json").json()["paths"].items():
            for method, one in operations.items():
                assert f"<pre>{method.upper()} {path}</pre>" in page
                assert f"<h3>{one['summary']}</h3>" in page
        assert '"selector": "JMSType = \'car\' AND weight > 2500"' in page


def test_callers_learn_whose_token_they_send(registry):
    with service(registry) as client:
        assert client.get("/v1/caller").json() == {"name": None, "role": "admin", "topics": []}
    registry.add_token("admin")
    token, secret = registry.add_token("reader", topics=["cars/#"], name="board")
    with service(registry, headers={"Authorization": f"Bearer {secret}"}) as client:
        assert client.get("/v1/caller").json() == {"name": "board", "role": "reader", "topics": ["cars/#"]}
    with service(registry) as client:
        assert client.get("/v1/caller").status_code == 401
    assert token.name == "board"
