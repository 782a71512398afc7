"""The console as people use it: in a real Chromium, by mouse and by keyboard, in all its screens."""

from __future__ import annotations

import importlib
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.queues.sql.queues import SqlQueues
from tests.support.servers.serving import served

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

HEAVY = "JMSType = 'car' AND weight > 2500"
CAR = '{"topic": "cars/eu", "headers": {"JMSType": "car"}, "properties": {"weight": 3000}}'
AXE = ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]
SCREENS = (
    ("overview", "overview"),
    ("stream", "streams/q"),
    ("remove a stream", "streams/q?do=remove"),
    ("subscriptions", "subscriptions"),
    ("an empty list", "subscriptions?name=nothing"),
    ("a search", "subscriptions?text=car"),
    ("an empty search", "subscriptions?text=nothing&field=selector"),
    ("editor", "subscriptions/heavy/edit"),
    ("new", "subscriptions/new"),
    ("subscription", "subscriptions/heavy"),
    ("remove", "subscriptions/heavy/remove"),
    ("many", "bulk?action=remove&text=car"),
    ("none of many", "bulk?action=resume&text=car"),
    ("who gets", "who-gets"),
    ("answer", "who-gets?explain=heavier&message=" + CAR.replace(" ", "%20").replace('"', "%22")),
    ("bad message", "who-gets?message={"),
    ("queues", "queues"),
    ("queue", "queues/orders"),
    ("put", "queue-put/orders"),
    ("message", "queue-message/orders?token={token}&selector=color+=+'red'"),
    ("get", "queue-get/orders?token={token}&after={token}"),
    ("purge", "queue-purge/orders"),
    ("move", "queue-move/orders?selector=color+=+'red'"),
    ("error", "subscriptions/nothing"),
    ("sign in", "sign-in"),
)


@pytest.fixture
def filled(registry):
    registry.register(SubscriptionSpec(HEAVY, topic="cars/+", labels={"team": "eu"}), id="heavy")
    registry.register(SubscriptionSpec("weight > 4000 AND JMSType = 'car'"), id="heavier")
    registry.register(SubscriptionSpec("color LIKE '%x'"), id="scanned")
    queues = SqlQueues(registry.url)
    orders = queues.create("orders")
    orders.put(b"hello", correl_id=b"order 7".ljust(24, b"\0"), properties={"color": "red"})
    orders.put(b"\x00\xff", priority=9)
    queues.close()
    for number in range(30):
        batch = dict.fromkeys(("messages", "routed", "unrouted", "dead_lettered", "refused"), number)
        batch |= {"batch": number, "revision": 1, "kind": "stream", "ended": f"2026-11-25T00:00:{number:02}Z"}
        batch |= {
            "deliveries": 100 + number,
            "queued": 0,
            "sent": 0,
            "reasons": {},
            "seconds": {"pin": 0.02, "match": 0.1},
            "busiest": {"heavy": number, "scanned": 1},
        }
        registry.note_reports("q", [batch], {"waiting": {"queue": 1}, "behind": None})
    registry.note_messages("q", [car(weight) for weight in range(2_000, 4_000, 100)])
    return registry


def car(weight, **others):
    return {"headers": {"JMSType": "car"}, "properties": {"weight": weight, **others}, "topic": "cars/eu"}


@pytest.fixture
def url(filled):
    with served(filled) as url:
        yield f"{url}/console/"


@pytest.fixture
def url_with_jobs(world, jobs, registry):
    with served(registry, snapshots=world.snapshots, jobs=jobs) as url:
        yield f"{url}/console/"


def expect(locator, message=None):
    """Waits until it holds: a click returns before the page that it leads to is there."""
    expect = importlib.import_module("playwright.sync_api").expect
    expect.set_options(timeout=20_000)
    return expect(locator, message)


def status(page):
    return page.get_by_role("status").first


def test_a_subscription_is_registered_changed_paused_resumed_and_removed(url, person, filled):
    page = person()
    page.goto(f"{url}subscriptions")
    page.get_by_role("link", name="Register a subscription").click()
    page.get_by_label("Name", exact=True).fill("light cars")
    page.get_by_label("Topic filter").fill("cars/#")
    page.get_by_label("Selector").fill("weight < 500")
    page.get_by_label("Labels").fill("team=eu\nstage = test")
    page.get_by_role("button", name="Save").click()
    expect(status(page)).to_have_text("It is registered.")
    made = filled.get_by_name("light cars")
    assert (made.selector, made.topic, made.labels) == (
        "weight < 500",
        "cars/#",
        {"team": "eu", "stage": "test"},
    )
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Selector").fill("weight <= 500")
    page.get_by_label("Destination").select_option("queue")
    page.get_by_label("Name of the queue or topic").fill("orders")
    page.get_by_role("button", name="Save").click()
    expect(status(page)).to_have_text("The change is saved.")
    made = filled.get(made.id)
    assert (made.selector, made.destination.text) == ("weight <= 500", "queue:orders")
    page.get_by_role("button", name="Pause").click()
    expect(status(page)).to_have_text("It is paused.")
    assert filled.get(made.id).status == "paused"
    page.get_by_role("button", name="Resume with what it missed").click()
    expect(status(page)).to_contain_text("It is resumed, with what it missed")
    assert filled.get(made.id).status == "active"
    page.get_by_role("link", name="Remove…").click()
    expect(page.locator("main")).to_contain_text("One subscription will be removed")
    assert filled.get(made.id), "asked, and not done"
    page.get_by_role("button", name="Remove it").click()
    expect(status(page)).to_have_text("It is removed.")
    rows = page.locator("tbody tr").all_inner_texts()
    assert [row.split("\t")[2] for row in rows] == ["remove", "resume", "pause", "replace", "add"]


def test_subscriptions_are_searched_and_who_gets_a_message_is_asked(url, person):
    page = person()
    page.goto(f"{url}subscriptions")
    rows = page.locator("tbody tr")
    page.get_by_label("Search for").fill("CAR")
    page.get_by_label("In", exact=True).select_option("topic")
    page.get_by_role("button", name="Search").click()
    expect(rows.locator("th")).to_have_text(["heavy"])
    expect("text=CAR&field=topic" in page.url and page.get_by_label("Search for")).to_have_value("CAR")
    page.get_by_label("Search for").fill("")
    page.get_by_text("Only those with exact values").click()
    page.get_by_label("Label").fill("team=eu")
    page.get_by_role("button", name="Search").click()
    expect(rows.locator("th")).to_have_text(["heavy"])
    page.goto(f"{url}subscriptions")
    page.get_by_label("In the order of").select_option("newest")
    page.get_by_role("button", name="Search").click()
    expect(rows.locator("th")).to_have_text(["scanned", "heavier", "heavy"])
    page.goto(f"{url}who-gets")
    page.get_by_text("Pick a recent message").click()
    expect(page.locator(".recent li")).to_have_count(10)
    page.locator(".recent a").first.click()
    page.get_by_role("heading", name="1 subscription gets it").wait_for()
    expect(page.get_by_label("Message, as JSON")).to_have_value(re.compile('"weight": 3900'))
    page.get_by_label("Message, as JSON").fill(CAR)
    page.get_by_label("Explain it for the subscription").fill("heavier")
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("heading", name="heavier does not get it: its selector is false").wait_for()
    near = page.get_by_role("region", name="Table of near misses").inner_text()
    assert "heavier" in near and "weight > 4000 is false" in near and "weight is" in near
    expect(page.locator(".tree")).to_contain_text("long 3000")
    page.get_by_role("button", name="Explain heavy", exact=True).click()
    page.get_by_role("heading", name="heavy gets it").wait_for()
    assert page.url.endswith("#why")
    page.get_by_label("Message, as JSON").fill('{"properties": {"long": "' + "x" * 20_000 + '"}}')
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("heading", name="0 subscriptions get it").wait_for()


def test_who_is_signed_out_while_writing_signs_in_elsewhere_and_loses_nothing(url, person, filled):
    token, secret = filled.add_token("writer", topics=["cars/#"], name="desk")
    page = person()
    page.goto(f"{url}subscriptions/heavy/edit")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Selector").fill("weight > 9")
    filled.revoke_token(token.id)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("You are no longer signed in")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Sign in in another window").click()
    opened.value.get_by_label("Token").fill(filled.add_token("writer", topics=["cars/#"])[1])
    opened.value.get_by_role("button", name="Sign in").click()
    opened.value.get_by_role("heading", level=1).wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The change is saved.").wait_for()
    assert filled.get("heavy").selector == "weight > 9"


def test_the_page_of_a_change_tells_from_which_batch_it_holds(url, person, filled):
    page = person()
    page.goto(f"{url}subscriptions/heavy")
    expect(page.locator("main")).to_contain_text("none has reported one yet")
    filled.note_query("q", source="/in", can_replay=True)
    filled.note_batch("q", 31, filled.revision)
    page.get_by_text("in the stream q from batch 31 on").wait_for()


def test_the_overview_tells_what_needs_attention_and_leads_to_the_batches(url, person):
    page = person()
    page.goto(url)
    expect(page.get_by_role("status")).to_contain_text(
        "destination of the kind queue makes the stream q wait"
    )
    expect(page.locator("main")).to_contain_text(
        "Attention: the stream q has 870 dead letters in its newest 30"
    )
    page.get_by_role("link", name="q", exact=True).click()
    expect(page.locator(".chart rect")).to_have_count(120)
    expect(page.locator("tbody tr")).to_have_count(32)
    box = page.locator("svg.chart").first.bounding_box()
    assert box["width"] > 300 and box["height"] > 50
    expect(page.locator("nav a[aria-current]")).to_have_text("Batches")


def test_a_selector_is_judged_while_it_is_typed_and_mended_by_one_click(url, person):
    page = person()
    page.goto(f"{url}subscriptions/new")
    selector, verdict = page.get_by_label("Selector"), page.locator("#verdict")
    selector.press_sequentially("😀 = 1 AND a == 3", delay=5)
    selector.fill("color = '😀' AND a == 3")
    verdict.get_by_text("Line 1, column 19: selectors have no such operator").wait_for()
    expect(verdict).to_contain_text("write = to compare")
    assert page.locator(".marks mark").text_content() == "=="
    verdict.get_by_role("button", name="Write color = '😀' AND a = 3").click()
    verdict.get_by_text("Valid. It is looked at by").wait_for()
    expect(page.locator(".marks mark")).to_have_count(0)
    expect(selector).to_have_value("color = '😀' AND a = 3")
    selector.fill("color LIKE '%x'")
    verdict.get_by_text("for every message (it has no equality, only LIKE)").wait_for()
    assert verdict.locator("li").inner_text().startswith("the selector is judged for every message")
    selector.fill("a = 'x")
    verdict.locator("p").first.get_by_text("Line 1").wait_for()
    assert verdict.get_attribute("role") == "status", "a screen reader hears it"
    selector.fill("Root.MQMD.Priority = 3")
    verdict.get_by_text("Line 1").wait_for()
    page.get_by_label("Dialect").select_option("ibm-mq")
    verdict.get_by_text("Valid.").wait_for()


def test_identifiers_of_recent_messages_are_offered_while_one_types(url, person, filled):
    filled.note_messages("q", [car(1, weather="wet", **{"we<img src=x>": "<b>"})])
    page = person()
    page.goto(f"{url}subscriptions/new")
    selector, offered = page.get_by_label("Selector"), page.locator("#names").get_by_role("option")
    selector.press_sequentially("color = 'we' AND we")
    page.get_by_role("listbox", name="Identifiers in recent messages").wait_for()
    assert offered.all_inner_texts() == [
        "weight long, such as 2000, 2100, 2200",
        "we<img src=x> string, such as <b>",
        "weather string, such as wet",
    ]
    assert page.locator("#names img").count() == 0
    selector.press("ArrowDown")
    selector.press("ArrowDown")
    selector.press("ArrowUp")
    assert selector.get_attribute("aria-activedescendant") == "name-0"
    selector.press("Enter")
    expect(offered).to_have_count(0)
    expect(selector).to_have_value("color = 'we' AND weight")
    selector.press_sequentially(" > 1 AND wea")
    offered.first.wait_for()
    selector.press("Escape")
    expect(offered).to_have_count(0)
    selector.press_sequentially("t")
    offered.first.click()
    expect(selector).to_have_value("color = 'we' AND weight > 1 AND weather")
    selector.press_sequentially(" = 'wei")
    page.locator("#verdict").get_by_text("Line 1").wait_for()
    expect(offered, "not inside a string").to_have_count(0)


def test_a_change_is_tried_on_recent_messages_before_it_is_saved(url, person, filled):
    page = person()
    page.goto(f"{url}subscriptions/heavy/edit")
    page.get_by_label("Selector").fill("weight > 3500 OR weight < 2200")
    page.get_by_label("Topic filter").fill("cars/eu")
    page.get_by_role("button", name="Try it on recent messages").click()
    told = page.get_by_role("region", name="Dry run")
    expect(told).to_contain_text("newest 20 messages")
    expect(told).to_contain_text("gains 2 and loses 10; 4 stay. Nothing is saved yet.")
    lost = page.get_by_role("region", name="Messages lost")
    assert "the newest 5 of 10 messages" in lost.inner_text() and '"weight": 3500' in lost.inner_text()
    assert filled.get("heavy").selector == HEAVY
    expect(page.get_by_label("Selector")).to_have_value("weight > 3500 OR weight < 2200")
    page.get_by_role("button", name="Save").click()
    expect(status(page)).to_have_text("The change is saved.")
    assert filled.get("heavy").selector.endswith("< 2200")
    page.goto(f"{url}subscriptions/heavy/edit")
    page.get_by_label("Selector").fill("weight >")
    page.get_by_role("button", name="Try it on recent messages").click()
    expect(page.get_by_role("alert")).to_contain_text("selector")
    page.get_by_label("Selector").fill("weight > 3800")
    page.get_by_role("button", name="Try it on recent messages").click()
    page.get_by_role("region", name="Messages lost").get_by_role("link", name="Who gets it?").first.click()
    expect(page.locator("#found")).to_contain_text("gets it")


def test_of_two_people_the_second_sees_both_versions_before_one_is_lost(url, person, filled):
    first, second = person(), person()
    for page in (first, second):
        page.goto(f"{url}subscriptions/heavy/edit")
    first.get_by_label("Selector").fill("weight > 2600")
    first.get_by_role("button", name="Save").click()
    expect(status(first)).to_have_text("The change is saved.")
    second.get_by_label("Selector").fill("weight > 2700")
    with second.expect_response(lambda one: one.url.endswith("/edit")) as answered:
        second.get_by_role("button", name="Save").click()
    assert answered.value.status == 412
    expect(second.get_by_role("alert")).to_contain_text("Another person changed this subscription meanwhile")
    table = second.get_by_role("region", name="What is there now").or_(second.locator(".theirs")).first
    assert "weight > 2600" in table.inner_text() and "weight > 2700" in table.inner_text()
    assert filled.get("heavy").selector == "weight > 2600"
    assert faults_of(second) == []
    second.get_by_role("button", name="Save").click()
    expect(status(second)).to_have_text("The change is saved.")
    assert filled.get("heavy").selector == "weight > 2700"
    first.goto(f"{url}subscriptions/heavy/remove")
    filled.pause("heavy")
    first.get_by_role("button", name="Remove it").click()
    expect(first.locator("h1")).to_contain_text("changed in the meantime")
    assert filled.get("heavy")


def test_messages_of_a_queue_are_browsed_put_got_moved_and_purged(url, person, filled):
    with SqlQueues(filled.url) as queues:
        queues.create("backout")
    page = person()
    page.goto(f"{url}queues/orders")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("link", name="Put a message…").click()
    page.get_by_label("Body, as text").fill("\ngrüß\ndich")
    page.get_by_label("Priority").fill("12")
    page.get_by_role("button", name="Put 1 message").click()
    expect(page.get_by_role("alert")).to_have_count(1)
    expect(page.get_by_label("Body, as text")).to_have_value("\ngrüß\ndich")
    page.get_by_label("Priority").fill("9")
    page.get_by_label("Properties").fill('"weight";3000;integer')
    page.get_by_role("button", name="Put 1 message").click()
    expect(rows).to_have_count(3)
    page.get_by_role("link", name="Get message").first.click()
    with page.expect_download() as loading:
        page.get_by_role("link", name="Download the body, 2 bytes").click()
    assert loading.value.path().read_bytes() == b"\x00\xff"
    assert loading.value.suggested_filename.endswith(".bin")
    page.get_by_role("button", name="Get 1 message").click()
    expect(status(page)).to_contain_text("It has left the queue")
    assert page.locator("pre.digits").inner_text() == "00 ff", "no text"
    page.get_by_role("link", name="To the queue").click()
    page.get_by_role("link", name="Get message").first.click()
    page.get_by_role("button", name="Get 1 message").click()
    expect(status(page)).to_contain_text("It has left the queue")
    assert page.locator("pre.body").text_content() == "\ngrüß\ndich"
    assert page.locator("tbody tr").inner_text().split() == ["weight", "int", "3000"]
    page.get_by_role("link", name="To the queue").click()
    page.get_by_label("Selector").fill("color = 'red'")
    page.get_by_role("button", name="Browse").click()
    page.get_by_role("link", name="Move those that are found…").click()
    page.get_by_label("To the queue").select_option("backout")
    page.get_by_role("button", name="Move 1 message").click()
    expect(status(page)).to_contain_text("1 message was moved to backout.")
    page.get_by_role("link", name="backout").click()
    page.get_by_role("link", name="Purge all messages…").click()
    page.get_by_role("button", name="Purge 1 message").click()
    expect(status(page)).to_contain_text("1 message was removed.")


def test_a_service_that_restarts_under_a_page_does_not_lose_it(filled, person, chromium):
    _, secret = filled.add_token("admin", name="chief")
    page = person()
    with served(filled) as url:
        port = int(url.rpartition(":")[2])
        page.goto(f"{url}/console/subscriptions/heavy/edit")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_label("Selector").fill("weight > 1")
        page.locator("#verdict").get_by_text("Valid.").wait_for()
    page.get_by_label("Selector").fill("weight > 12")
    page.locator("#verdict").get_by_text("The service does not answer").wait_for()
    with served(filled, port):
        page.get_by_label("Selector").fill("weight > 123")
        page.locator("#verdict").get_by_text("Valid.").wait_for()
        page.get_by_role("button", name="Save").click()
        expect(status(page)).to_have_text("The change is saved.")
        assert filled.get("heavy").selector == "weight > 123"
        page.goto(f"{url}/console/subscriptions/heavy/edit")
        (chief,) = filled.tokens()
        filled.revoke_token(chief.id)
        page.get_by_label("Selector").fill("weight > 1234")
        page.locator("#verdict").get_by_text("You are no longer signed in").wait_for()
        expect(page.get_by_label("Selector")).to_have_value("weight > 1234")


def test_everything_is_done_with_the_keyboard_alone(url, person, filled):
    page = person()
    page.goto(f"{url}subscriptions/heavy")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "q", "the stream of its last delivery"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Edit"
    page.keyboard.press("Enter")
    page.get_by_label("Selector").wait_for()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "selector":
            break
    page.keyboard.press("Control+A")
    page.keyboard.type("weight > 9 =")
    page.locator("#verdict").get_by_text("Line 1").wait_for()
    page.keyboard.press("Control+A")
    page.keyboard.type("weight == 9")
    page.locator("#verdict").get_by_role("button").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("#verdict").get_by_text("Valid.").wait_for()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Save":
            break
    page.keyboard.press("Enter")
    page.get_by_text("The change is saved.").wait_for()
    assert filled.get("heavy").selector == "weight = 9"


def faults_of(page):
    """What axe-core finds in the answer to a form, which cannot be asked for by its URL."""
    from axe_playwright_python.sync_playwright import Axe

    with_policy = page.context.browser.new_context(bypass_csp=True)
    copy = with_policy.new_page()
    copy.set_content(page.content())
    result = Axe().run(copy, options={"runOnly": AXE})
    with_policy.close()
    return [one["id"] for one in result.response["violations"]]


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.nightly)])
def test_dead_letters_are_replayed_in_two_steps_and_followed_and_an_audit_is_read(
    url_with_jobs, person, world, jobs, scheme
):
    from selectroute.spark.replay.replay import Replays

    page = person(viewport={"width": 320, "height": 800}, color_scheme=scheme)
    page.goto(f"{url_with_jobs}jobs/flights/dead-letters")
    letters = page.get_by_role("article")
    page.get_by_role("link", name="Older dead letters").click()
    expect(letters).to_have_count(5)
    assert page.locator("main img").count() == 0
    accessible(page)
    letters.first.get_by_role("link", name="Replay this one").click()
    expect(page.locator("main")).to_contain_text("A replay would take 1 dead letter.")
    accessible(page)
    page.get_by_role("button", name="Replay 1 dead letter").click()
    expect(status(page)).to_contain_text("It waits for the job")
    (waiting,) = jobs["flights"].waiting()
    assert page.url.endswith(waiting)
    table = page.get_by_role("region", name="Batches of the replay")
    assert not table.is_visible()
    page.evaluate("window.same = true")
    replays = Replays(world.router(), print)
    assert len(list(iter(lambda: replays.next("q"), None))) == 1
    page.get_by_text("It is done. 1 of 1 dead letter taken").wait_for()
    assert page.evaluate("window.same"), "without loading the page again"
    assert table.locator("tbody tr").inner_text().split("\t")[:4] == ["-1", "1", "1", "1"]
    accessible(page)
    page.goto(f"{url_with_jobs}jobs")
    accessible(page)
    page.get_by_role("button", name="Audit flights").click()
    page.get_by_role("heading", name="Audit of flights").wait_for()
    assert "Nothing is half done." in page.get_by_role("listitem").all_inner_texts()
    accessible(page)


def accessible(page):
    """Check that a page is no wider than its window and that axe-core finds nothing in it."""
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], page.url
    assert violations(page) == [], page.url


def violations(page):
    from axe_playwright_python.sync_playwright import Axe

    with_policy = page.context.browser.new_context(
        bypass_csp=True, viewport=page.viewport_size, storage_state=page.context.storage_state()
    )
    copy = with_policy.new_page()
    copy.goto(page.url)
    result = Axe().run(copy, options={"runOnly": AXE})
    with_policy.close()
    return [
        (one["id"], [node["html"][:200] for node in one["nodes"]]) for one in result.response["violations"]
    ]


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        (320, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.nightly),
        pytest.param(320, "light", marks=pytest.mark.nightly),
    ],
)
def test_no_screen_shuts_anybody_out(url, person, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page = person(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
    found = []
    page.goto(f"{url}queues/orders")
    token = page.locator("tbody a").last.get_attribute("href").partition("token=")[2]
    for name, path in (*SCREENS, ("got", "queue-get/orders?token={token}")):
        page.goto(url + path.replace("{token}", token))
        if name == "got":
            page.get_by_role("button", name="Get 1 message").click()
            expect(status(page)).to_contain_text("It has left the queue")
        if "edit" in path:
            page.get_by_role("button", name="Try it").click()
            # The answer is another page, whose script has to run before anybody types.
            page.get_by_role("region", name="Dry run").wait_for()
            page.locator("#verdict").get_by_text("Valid.").wait_for()
            page.get_by_label("Selector").fill("wei")
            page.locator("#names").get_by_role("option").first.wait_for()
        result = Axe().run(page, options={"runOnly": AXE})
        found += [
            (name, one["id"], [node["html"][:200] for node in one["nodes"]])
            for one in result.response["violations"]
        ]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (
            f"{name} is wider than the window"
        )
    assert found == []


def test_markup_that_people_write_is_never_run(url, person, filled):
    markup = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"
    one = filled.register(
        SubscriptionSpec(f"a = '{markup.replace(chr(39), chr(39) * 2)}'", name=markup[:60], topic="a<b>c")
    )
    page = person()
    page.goto(f"{url}subscriptions/new")
    page.get_by_label("Selector").fill(f"a == '{markup.replace(chr(39), chr(39) * 2)}'")
    page.locator("#verdict").get_by_role("button").wait_for()
    page.goto(f"{url}who-gets")
    page.get_by_label("Message, as JSON").fill('{"properties": {"a": "<img src=x onerror=alert(1)>"}}')
    page.get_by_label("Explain it for").fill(one.id)
    page.get_by_role("button", name="Ask").click()
    page.locator(".tree").wait_for()
    assert "hit" not in page.title() and page.locator("main img").count() == 0


@contextmanager
def site(html):
    """Another origin on this machine that shows a page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_another_page_can_neither_frame_the_console_nor_act_in_it(filled, person):
    _, secret = filled.add_token("admin")
    page = person()
    with served(filled) as url:
        page.goto(f"{url}/console/sign-in")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        # The same machine, so that the browser sends the cookie: only the origin differs.
        evil = (
            f'<form method="post" action="{url}/console/subscriptions/heavy/pause">'
            '<input name="revision" value="1"><button>Win</button></form>'
            f'<iframe src="{url}/console/subscriptions/heavy"></iframe>'
        )
        with site(evil) as other:
            page.goto(other)
            page.wait_for_timeout(500)
            frame = page.frames[1]
            assert "Subscription heavy" not in frame.content(), "shown inside another page"
            page.get_by_role("button", name="Win").click()
            expect(page.get_by_role("alert")).to_contain_text("does not come from a page of this console")
    assert filled.get("heavy").status == "active"
