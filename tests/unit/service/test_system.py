"""Limits, metrics, health and readiness."""

import base64
import hashlib
import html
import re

import pytest

from selectroute.registry.errors import UnavailableError
from selectroute.service.limits import ServiceLimits
from tests.support.waiting import wait_until
from tests.unit.service.conftest import bearer, client_of, problem, service


def values(client):
    text = client.get("/metrics").text
    return {name: float(value) for name, value in re.findall(r"^(\w+(?:{.*})?) (\S+)$", text, re.MULTILINE)}


def test_all_limits_are_shown(registry):
    with service(registry, limits=ServiceLimits(page=7)) as client:
        found = client.get("/v1/limits").json()
    known = {"page": 7, "selector_length": 10_240, "selector_nesting": 255, "selector_items": 10_000}
    known |= {"message_properties": 1_000, "property_name_length": 4_095, "body_bytes": 1 << 20}
    assert {name: found[name] for name in known} == known
    assert set(found) == set(ServiceLimits.model_fields)


def test_metrics_follow_the_registry(client, add):
    add("a = 1")
    add("a + b > 1")
    client.post("/v1/messages:match", json={"message": {}})
    found = values(client)
    known = {"registry_revision": 2, "registry_lag_seconds": 0, "registry_publisher": 1}
    known |= {"index_subscriptions": 2, "match_seconds_count": 1}
    assert {name: found[f"selectroute_{name}"] for name in known} == known
    scanned = {name: count for name, count in found.items() if "index_scan_subscriptions" in name}
    reason = "it has no equality: it does not compare one property with a constant"
    assert scanned == {f'selectroute_index_scan_subscriptions{{reason="{reason}"}}': 1}
    assert found["selectroute_index_bytes"] > 0


def test_a_service_is_ready_once_a_revision_is_published(client, add):
    assert client.get("/healthz").json() == {"status": "ok"}
    add()
    ready = {"status": "ready", "revision": 1, "published": 1}
    wait_until(lambda: client.get("/readyz").json() == ready, 30, "it is ready")


def test_a_registry_that_cannot_be_read_makes_it_unready(client, registry, monkeypatch):
    def fails(_):
        raise UnavailableError("the database cannot be reached at secret.example")

    monkeypatch.setattr(type(registry), "revision", property(fails))
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "reason": "the registry cannot be read"}
    assert client.get("/healthz").status_code == 200


def test_a_folder_that_cannot_be_published_to_is_said_and_no_log_is_read_for_it(
    registry, monkeypatch, tmp_path
):
    # One revision may be an import of a million lines.
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(registry, "changes", None)
    with service(registry, snapshots=tmp_path / "file") as client:
        assert client.post("/v1/subscriptions", json={}).status_code == 201
        lag = "selectroute_registry_lag_seconds"
        wait_until(lambda: values(client)[lag] > 0, 30, "the service is behind the registry")
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["reason"]) == (503, "no revision is published yet")


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
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
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
        _, admin = registry.tokens.add("reader")
        _, limited = registry.tokens.add("reader", topics=["t/#"])
        with service(registry) as client:
            assert "<td>" not in client.get("/").text
            for secret, told in ((admin, True), (limited, False), ("srt_" + "x" * 43, False)):
                answer = client.get("/", headers=bearer(secret))
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
    registry.tokens.add("admin")
    with client_of(registry, "reader", ["cars/#"], name="board") as client:
        assert client.get("/v1/caller").json() == {"name": "board", "role": "reader", "topics": ["cars/#"]}
        assert client.get("/v1/caller", headers={"Authorization": ""}).status_code == 401
