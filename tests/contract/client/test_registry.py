"""The contract of a registry over HTTP, through a service that listens."""

from __future__ import annotations

import json

import pytest

import selectroute as sr
from selectroute.client.registry import RemoteRegistry
from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.errors import (
    AuthError,
    ImportLineError,
    NotFoundError,
    OperationError,
    RegistryError,
    StaleRevisionError,
)
from selectroute.registry.model import Backfill, Operation
from selectroute.registry.registry import Registry
from tests.contract.registry.log.test_revision import test_no_operations_make_no_revision  # noqa: F401
from tests.contract.registry.test_pages import (  # noqa: F401
    test_a_cursor_is_stable_while_others_come_and_go,
    test_filters_follow_a_change,
    test_long_topic_filters_are_found_like_short_ones,
    test_pages_hold_every_subscription_once_in_the_order_of_ids,
    test_what_is_no_cursor_is_refused,
)
from tests.contract.registry.test_registry import (  # noqa: F401
    test_a_change_that_expects_another_revision_is_refused,
    test_a_name_is_one_subscriptions,
    test_a_patch_changes_the_fields_that_it_names,
    test_a_patch_of_what_cannot_be_names_the_field,
    test_a_subscription_without_a_name_has_its_id_for_one,
    test_an_id_of_other_characters_is_refused,
    test_an_id_that_is_taken_is_refused,
    test_pausing_twice_and_resuming_twice_change_nothing,
    test_replacing_gives_another_specification_and_keeps_the_rest,
    test_resuming_says_since_when_it_was_paused_and_who_can_read_again,
    test_what_is_got_can_be_put_back_as_a_patch,
    test_what_is_registered_is_got_back_whole,
)
from tests.contract.registry.test_transfer import (  # noqa: F401
    test_a_line_that_cannot_be_is_named_and_nothing_is_stored,
    test_an_empty_import_makes_no_revision,
    test_an_export_has_what_get_has,
    test_an_export_may_be_of_the_past,
)
from tests.support.servers.serving import served

pytestmark = pytest.mark.slow

CAR = SubscriptionSpec("JMSType = 'car' AND weight > 2500", topic="cars/+")


class Watched(RemoteRegistry):
    """With what the contract asks of the database behind it."""

    local: Registry

    def __len__(self):
        return len(self.local)

    def verify(self):
        return self.local.verify()


@pytest.fixture
def local(url, tmp_path):
    with Registry.open(url) as opened:
        opened.set("snapshots", str(tmp_path / "snapshots"))
        yield opened


@pytest.fixture
def registry(local):
    with served(local) as url, Watched(url) as remote:
        remote.local = local
        yield remote


def test_a_service_that_is_connected_to_has_the_same_methods(local):
    with served(local) as url, sr.connect(url) as opened:
        assert isinstance(opened, RemoteRegistry)
        assert opened.register(CAR, id="heavy") == local.get("heavy")
        assert opened.revision == 1 == local.revision


def test_registry_open_names_what_opens_a_service():
    with pytest.raises(sr.SelectRouteError, match=r"a service is opened by selectroute\.connect"):
        sr.Registry.open("http://127.0.0.1:8080")


def test_an_invalid_selector_is_shown_as_where_it_was_found(registry):
    for text in ("region = 'EMEA AND price > 10", "a == 1", "a = 1 b", "(a = 1", "JMSMessageId = 'x'"):
        with pytest.raises(sr.InvalidSelectorError) as here:
            sr.Selector(text)
        for refused in (
            lambda text=text: registry.register(SubscriptionSpec(text)),
            lambda text=text: registry.register(SubscriptionSpec(text), id="a"),
        ):
            with pytest.raises(sr.InvalidSelectorError) as there:
                refused()
            assert str(there.value) == str(here.value)
            # The edit may begin elsewhere in `==`: what it makes is the same.
            assert there.value.to_dict() | {"fix": None} == here.value.to_dict() | {"fix": None}
    registry.register(SubscriptionSpec(dialect="mqe"), id="a")
    with pytest.raises(sr.InvalidSelectorError) as there:
        registry.change("a", {"selector": "a = 1 OR b = 2"})
    assert there.value.dialect == "mqe" and there.value.underlined == "OR"


def test_the_operation_and_the_line_at_fault_are_named(registry):
    good, bad = SubscriptionSpec("a = 1"), SubscriptionSpec("a == 1")
    with pytest.raises(OperationError) as caught:
        registry.apply([Operation("add", "a", good), Operation("add", "b", bad)])
    assert caught.value.index == 1 and isinstance(caught.value.cause, sr.InvalidSelectorError)
    assert caught.value.cause.underlined == "=="
    registry.register(good, id="a")
    with pytest.raises(OperationError, match="revision 1, not 7") as stale:
        registry.apply([Operation("add", "b", good), Operation("remove", "a", expected=7)])
    assert stale.value.index == 1 and isinstance(stale.value.cause, StaleRevisionError)
    assert (stale.value.cause.expected, stale.value.cause.actual) == (7, 1)
    lines = [json.dumps({"id": f"s{number}", "selector": "a = 1"}) for number in range(3_000)]
    with pytest.raises(ImportLineError) as refused:
        registry.import_([*lines, '{"selector": "a == 1"}', *lines])
    assert refused.value.line == 3_001
    assert isinstance(refused.value.cause, sr.InvalidSelectorError) and refused.value.cause.underlined == "=="
    assert len(registry) == 1
    with pytest.raises(ImportLineError) as refused:
        registry.import_([*lines[:2], "{", '{"selector": "a == 1"}', '{"id": "a a"}', *lines[2:4]])
    first, second, third = refused.value.problems
    assert (first.line, second.line, third.line) == (3, 4, 5)
    assert isinstance(second.cause, sr.InvalidSelectorError) and second.cause.underlined == "=="
    assert "not valid JSON" in str(first.cause) and str(third.cause).startswith("/id: ")


def test_an_import_says_how_far_it_is_and_an_export_gives_it_back(registry):
    lines = [json.dumps({"id": f"s{number:04}", "selector": "a = 1"}) for number in range(2_500)]
    said: list[int] = []
    assert registry.import_(lines, progress=lambda rows, _: said.append(rows)).rows == 2_500
    assert said == [1_000, 2_000]
    found = [*map(json.loads, registry.export())]
    assert [one["id"] for one in found] == [json.loads(line)["id"] for line in lines]
    assert registry.import_(registry.export(), mode="replace").revision == 2


def test_changes_and_what_queries_report_come_over(registry):
    registry.register(CAR, id="heavy")
    registry.pause("heavy")
    assert registry.changes() == registry.local.changes()
    assert registry.changes(1, limit=1)[0].op == "pause"
    assert registry.changes(2, wait_seconds=0.1) == []
    registry.streams.note_query("q-1", source="files", can_replay=False, reason="gone")
    registry.streams.note_batch("q-1", 7, 2)
    assert registry.streams.queries() == registry.local.streams.queries() == [Backfill("q-1", False, "gone")]
    found, batches = registry.effective_of("heavy")
    assert found == registry.get("heavy")
    assert batches == registry.local.streams.effective_from(2) and batches[0].query == "q-1"
    resumed = registry.resume("heavy", from_="last-processed")
    assert [(one.query, one.can_replay, one.reason) for one in resumed.backfill] == [("q-1", False, "gone")]
    registry.streams.note_reports("q-1", [], {"ended": "ended"})
    assert [one.status for one in registry.local.streams.all()] == ["ended"]
    registry.streams.remove("q-1")
    assert list(registry.local.streams.all()) == []
    with pytest.raises(NotFoundError):
        registry.streams.remove("q-1")


def test_a_log_of_any_size_is_followed_in_answers_of_a_limit(registry, monkeypatch):
    registry.import_(f'{{"id": "s{number}"}}' for number in range(9))
    registry.pause("s3")
    registry.resume("s3")
    registry.remove("s4")
    monkeypatch.setattr("selectroute.client.registry.MOST_CHANGES", 4)
    page = registry.changes(limit=1_000_000)
    assert len(page) == 4 and page.complete == 0
    assert list(registry.follow_changes(0)) == list(registry.local.follow_changes(0))
    assert [c.op for c in registry.follow_changes(0, ops=["remove", "resume"])] == ["resume", "remove"]
    assert list(registry.follow_changes(4)) == []
    followed = registry.follow_changes(3)
    assert next(followed).op == "remove"
    registry.register(CAR, id="later")  # it is followed up to where it was when that began
    assert list(followed) == []


def test_a_job_is_refused_a_token_for_some_topics(local):
    _, secret = local.tokens.add("writer", topics=["cars/#"])
    with served(local) as url, RemoteRegistry(url, secret) as remote:
        with pytest.raises(AuthError, match=r"a job needs a writer's token for all topics, .* cars/#"):
            remote.streams.queries()
        with pytest.raises(AuthError, match="a job needs a writer's token"):
            remote.streams.note_query("q", source="files", can_replay=True)
        with pytest.raises(AuthError, match="a job needs a writer's token"):
            remote.streams.note_batch("q", 1, 1)


def test_tokens_are_an_admins(local):
    _, admin = local.tokens.add("admin")
    _, writer = local.tokens.add("writer")
    with served(local) as url:
        with RemoteRegistry(url, admin) as remote:
            made, secret = remote.tokens.add("reader", topics=["cars/#"], name="reads")
            assert local.tokens.authenticate(secret) == made
            assert remote.tokens.all() == local.tokens.all()
            remote.tokens.revoke(made.id)
            with pytest.raises(NotFoundError):
                remote.tokens.revoke(made.id)
            with pytest.raises(InvalidSpecError) as caught:
                remote.tokens.add("reader", topics=["a+"])
            assert caught.value.pointer == "/topics/0"
        with RemoteRegistry(url, writer) as remote, pytest.raises(AuthError, match="role admin"):
            remote.tokens.all()


def test_explaining_is_the_services(registry):
    registry.register(CAR, id="heavy")
    message = sr.Message(headers={"JMSType": "car"}, properties={"weight": 7}, topic="cars/eu")
    why = registry.explain("heavy", message)
    assert (why["revision"], why["id"], why["matched"]) == (1, "heavy", False)
    assert why["selector"]["truth"] == "false"
    with pytest.raises(NotFoundError):
        registry.explain("nobody", message)


def test_an_id_is_never_a_step_of_a_path(registry):
    for id in (".", "..", "a.b", "-"):
        registry.register(CAR, id=id)
        assert registry.get(id).id == id
        assert registry.pause(id).status == "paused"
        assert registry.remove(id).id == id


def test_a_token_is_sent_and_never_shown(local):
    _, secret = local.tokens.add("reader")
    with served(local) as url:
        with RemoteRegistry(url, secret) as remote:
            assert remote.revision == 0 and secret not in repr(remote)
            with pytest.raises(AuthError) as refused:
                remote.register(CAR)
            assert secret not in str(refused.value)
        with RemoteRegistry(url) as remote, pytest.raises(AuthError):
            remote.get("a")
    with pytest.raises(RegistryError) as wrong:
        RemoteRegistry("http://localhost", "top\nhush")
    assert "hush" not in str(wrong.value)
