"""The console as people use it: in a real Chromium, by mouse and by keyboard, in all its screens."""

import importlib
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

from selectroute.index.specification import SubscriptionSpec
from selectroute.queues.sql.queue import SqlQueues
from tests.support.components import after_first
from tests.support.queue_calls import created
from tests.support.servers.serving import served

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

HEAVY = "JMSType = 'car' AND weight > 2500"
CAR = '{"topic": "cars/eu", "headers": {"JMSType": "car"}, "properties": {"weight": 3000}}'
AXE = ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]
SCREENS = f"""
    overview streams/q streams/q?do=remove subscriptions subscriptions?name=nothing subscriptions?text=car
    subscriptions?text=nothing&field=selector subscriptions/heavy/edit subscriptions/new subscriptions/heavy
    subscriptions/heavy/remove bulk?action=remove&text=car bulk?action=resume&text=car who-gets
    who-gets?explain=heavier&message={quote(CAR)} who-gets?message={{ queues queues/orders queue-put/orders
    queue-message/orders?token=TOKEN&selector=color+=+'red' queue-get/orders?token=TOKEN&after=TOKEN
    queue-purge/orders queue-move/orders?selector=color+=+'red' subscriptions/nothing sign-in
    queue-get/orders?token=TOKEN#got
""".split()
"""Every screen; the last one after a click."""


@pytest.fixture
def filled(registry):
    registry.register(SubscriptionSpec(HEAVY, topic="cars/+", labels={"team": "eu"}), id="heavy")
    registry.register(SubscriptionSpec("weight > 4000 AND JMSType = 'car'"), id="heavier")
    registry.register(SubscriptionSpec("color LIKE '%x'"), id="scanned")
    with SqlQueues(registry.url) as queues:
        orders = created(queues, "orders")
        orders.put(b"hello", correl_id=b"order 7".ljust(24, b"\0"), properties={"color": "red"})
        orders.put(b"\x00\xff", priority=9)
    for number in range(30):
        batch = dict.fromkeys(("messages", "routed", "unrouted", "dead_lettered", "refused"), number)
        batch |= {"batch": number, "revision": 1, "kind": "stream", "ended": f"2026-11-25T00:00:{number:02}Z"}
        batch |= {"deliveries": 100 + number, "queued": 0, "sent": 0, "reasons": {}}
        batch |= {"seconds": {"pin": 0.02, "match": 0.1}, "busiest": {"heavy": number, "scanned": 1}}
        registry.streams.note_reports("q", [batch], {"waiting": {"queue": 1}, "behind": None})
    registry.streams.note_messages("q", [car(weight) for weight in range(2_000, 4_000, 100)])
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
    return importlib.import_module("playwright.sync_api").expect(locator, message)


def status(page):
    return page.get_by_role("status").first


def press(page, name):
    page.get_by_role("button", name=name).click()


def follow(page, name, exact=False):
    page.get_by_role("link", name=name, exact=exact).click()


def write(page, fields):
    """Write a text into each field, by its label."""
    for label, text in fields.items():
        page.get_by_label(label).fill(text)


def test_a_subscription_is_registered_changed_paused_resumed_and_removed(url, person, filled):
    page = person()
    page.goto(f"{url}subscriptions")
    follow(page, "Register a subscription")
    page.get_by_label("Name", exact=True).fill("light cars")
    write(page, {"Topic filter": "cars/#", "Selector": "weight < 500", "Labels": "team=eu\nstage = test"})
    press(page, "Save")
    expect(status(page)).to_have_text("It is registered.")
    made = filled.get_by_name("light cars")
    assert (made.selector, made.topic) == ("weight < 500", "cars/#")
    assert made.labels == {"team": "eu", "stage": "test"}
    follow(page, "Edit")
    page.get_by_label("Destination").select_option("queue")
    write(page, {"Selector": "weight <= 500", "Name of the queue or topic": "orders"})
    press(page, "Save")
    expect(status(page)).to_have_text("The change is saved.")
    made = filled.get(made.id)
    assert (made.selector, made.destination.text) == ("weight <= 500", "queue:orders")
    press(page, "Pause")
    expect(status(page)).to_have_text("It is paused.")
    assert filled.get(made.id).status == "paused"
    press(page, "Resume with what it missed")
    expect(status(page)).to_contain_text("It is resumed, with what it missed")
    assert filled.get(made.id).status == "active"
    follow(page, "Remove…")
    expect(page.locator("main")).to_contain_text("One subscription will be removed")
    assert filled.get(made.id), "asked, and not done"
    press(page, "Remove it")
    expect(status(page)).to_have_text("It is removed.")
    rows = page.locator("tbody tr").all_inner_texts()
    assert [row.split("\t")[2] for row in rows] == ["remove", "resume", "pause", "replace", "add"]


def test_subscriptions_are_searched_and_who_gets_a_message_is_asked(url, person):
    page = person()
    page.goto(f"{url}subscriptions")
    rows = page.locator("tbody tr")
    write(page, {"Search for": "CAR"})
    page.get_by_label("In", exact=True).select_option("topic")
    press(page, "Search")
    expect(rows.locator("th")).to_have_text(["heavy"])
    expect("text=CAR&field=topic" in page.url and page.get_by_label("Search for")).to_have_value("CAR")
    page.get_by_text("Only those with exact values").click()
    write(page, {"Search for": "", "Label": "team=eu"})
    press(page, "Search")
    expect(rows.locator("th")).to_have_text(["heavy"])
    page.goto(f"{url}subscriptions")
    page.get_by_label("In the order of").select_option("newest")
    press(page, "Search")
    expect(rows.locator("th")).to_have_text(["scanned", "heavier", "heavy"])
    page.goto(f"{url}who-gets")
    page.get_by_text("Pick a recent message").click()
    expect(page.locator(".recent li")).to_have_count(10)
    page.locator(".recent a").first.click()
    page.get_by_role("heading", name="1 subscription gets it").wait_for()
    expect(page.get_by_label("Message, as JSON")).to_have_value(re.compile('"weight": 3900'))
    write(page, {"Message, as JSON": CAR, "Explain it for the subscription": "heavier"})
    press(page, "Ask")
    page.get_by_role("heading", name="heavier does not get it: its selector is false").wait_for()
    near = page.get_by_role("region", name="Table of near misses").inner_text()
    assert "heavier" in near and "weight > 4000 is false" in near and "weight is" in near
    expect(page.locator(".tree")).to_contain_text("long 3000")
    page.get_by_role("button", name="Explain heavy", exact=True).click()
    page.get_by_role("heading", name="heavy gets it").wait_for()
    assert page.url.endswith("#why")
    write(page, {"Message, as JSON": '{"properties": {"long": "' + "x" * 20_000 + '"}}'})
    press(page, "Ask")
    page.get_by_role("heading", name="0 subscriptions get it").wait_for()


def test_who_is_signed_out_while_writing_signs_in_elsewhere_and_loses_nothing(url, person, filled):
    token, secret = filled.tokens.add("writer", topics=["cars/#"], name="desk")
    page = person()
    page.goto(f"{url}subscriptions/heavy/edit")
    write(page, {"Token": secret})
    press(page, "Sign in")
    write(page, {"Selector": "weight > 9"})
    filled.tokens.revoke(token.id)
    press(page, "Save")
    expect(page.get_by_role("alert")).to_contain_text("You are no longer signed in")
    with page.context.expect_page() as opened:
        follow(page, "Sign in in another window")
    write(opened.value, {"Token": filled.tokens.add("writer", topics=["cars/#"])[1]})
    press(opened.value, "Sign in")
    opened.value.get_by_role("heading", level=1).wait_for()
    press(page, "Save")
    page.get_by_text("The change is saved.").wait_for()
    assert filled.get("heavy").selector == "weight > 9"


def test_the_page_of_a_change_tells_from_which_batch_it_holds(url, person, filled):
    page = person()
    page.goto(f"{url}subscriptions/heavy")
    expect(page.locator("main")).to_contain_text("none has reported one yet")
    filled.streams.note_query("q", source="/in", can_replay=True)
    filled.streams.note_batch("q", 31, filled.revision)
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
    follow(page, "q", exact=True)
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
    press(verdict, "Write color = '😀' AND a = 3")
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


def test_a_verdict_that_comes_while_a_button_is_pressed_does_not_take_the_click(url, person):
    page = person()
    page.goto(f"{url}subscriptions/new")
    checked, held = "**/selector/check", []
    page.route(checked, lambda route: held.append(route))
    with page.expect_request(checked):
        page.get_by_label("Selector").fill("weight < 500")
    page.get_by_role("button", name="Save").hover()
    page.mouse.down()
    with page.expect_response(checked):
        held[-1].continue_()
    page.wait_for_timeout(100)
    page.mouse.up()
    expect(status(page)).to_have_text("It is registered.")


def test_identifiers_of_recent_messages_are_offered_while_one_types(url, person, filled):
    filled.streams.note_messages("q", [car(1, weather="wet", **{"we<img src=x>": "<b>"})])
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
    write(page, {"Selector": "weight > 3500 OR weight < 2200", "Topic filter": "cars/eu"})
    press(page, "Try it on recent messages")
    told = page.get_by_role("region", name="Dry run")
    expect(told).to_contain_text("newest 20 messages")
    expect(told).to_contain_text("gains 2 and loses 10; 4 stay. Nothing is saved yet.")
    lost = page.get_by_role("region", name="Messages lost")
    assert "the newest 5 of 10 messages" in lost.inner_text() and '"weight": 3500' in lost.inner_text()
    assert filled.get("heavy").selector == HEAVY
    expect(page.get_by_label("Selector")).to_have_value("weight > 3500 OR weight < 2200")
    press(page, "Save")
    expect(status(page)).to_have_text("The change is saved.")
    assert filled.get("heavy").selector.endswith("< 2200")
    page.goto(f"{url}subscriptions/heavy/edit")
    write(page, {"Selector": "weight >"})
    press(page, "Try it on recent messages")
    expect(page.get_by_role("alert")).to_contain_text("selector")
    write(page, {"Selector": "weight > 3800"})
    press(page, "Try it on recent messages")
    page.get_by_role("region", name="Messages lost").get_by_role("link", name="Who gets it?").first.click()
    expect(page.locator("#found")).to_contain_text("gets it")


def test_of_two_people_the_second_sees_both_versions_before_one_is_lost(url, person, filled):
    first, second = person(), person(bypass_csp=True)
    for page in (first, second):
        page.goto(f"{url}subscriptions/heavy/edit")
    write(first, {"Selector": "weight > 2600"})
    press(first, "Save")
    expect(status(first)).to_have_text("The change is saved.")
    write(second, {"Selector": "weight > 2700"})
    with second.expect_response(lambda one: one.url.endswith("/edit")) as answered:
        press(second, "Save")
    assert answered.value.status == 412
    expect(second.get_by_role("alert")).to_contain_text("Another person changed this subscription meanwhile")
    table = second.get_by_role("region", name="What is there now").or_(second.locator(".theirs")).first
    assert "weight > 2600" in table.inner_text() and "weight > 2700" in table.inner_text()
    assert filled.get("heavy").selector == "weight > 2600"
    assert violations(second) == []
    press(second, "Save")
    expect(status(second)).to_have_text("The change is saved.")
    assert filled.get("heavy").selector == "weight > 2700"
    first.goto(f"{url}subscriptions/heavy/remove")
    filled.pause("heavy")
    press(first, "Remove it")
    expect(first.locator("h1")).to_contain_text("changed in the meantime")
    assert filled.get("heavy")


def test_messages_of_a_queue_are_browsed_put_got_moved_and_purged(url, person, filled):
    with SqlQueues(filled.url) as queues:
        queues.create("backout")
    page = person()
    page.goto(f"{url}queues/orders")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    follow(page, "Put a message…")
    write(page, {"Body, as text": "\ngrüß\ndich", "Priority": "12"})
    press(page, "Put 1 message")
    expect(page.get_by_role("alert")).to_have_count(1)
    expect(page.get_by_label("Body, as text")).to_have_value("\ngrüß\ndich")
    write(page, {"Priority": "9", "Properties": '"weight";3000;integer'})
    press(page, "Put 1 message")
    expect(rows).to_have_count(3)
    page.get_by_role("link", name="Get message").first.click()
    with page.expect_download() as loading:
        follow(page, "Download the body, 2 bytes")
    assert loading.value.path().read_bytes() == b"\x00\xff"
    assert loading.value.suggested_filename.endswith(".bin")
    press(page, "Get 1 message")
    expect(status(page)).to_contain_text("It has left the queue")
    assert page.locator("pre.digits").inner_text() == "00 ff", "no text"
    follow(page, "To the queue")
    page.get_by_role("link", name="Get message").first.click()
    press(page, "Get 1 message")
    expect(status(page)).to_contain_text("It has left the queue")
    assert page.locator("pre.body").text_content() == "\ngrüß\ndich"
    assert page.locator("tbody tr").inner_text().split() == ["weight", "int", "3000"]
    follow(page, "To the queue")
    write(page, {"Selector": "color = 'red'"})
    press(page, "Browse")
    follow(page, "Move those that are found…")
    page.get_by_label("To the queue").select_option("backout")
    press(page, "Move 1 message")
    expect(status(page)).to_contain_text("1 message was moved to backout.")
    follow(page, "backout")
    follow(page, "Purge all messages…")
    press(page, "Purge 1 message")
    expect(status(page)).to_contain_text("1 message was removed.")


def test_a_service_that_restarts_under_a_page_does_not_lose_it(filled, person, chromium):
    _, secret = filled.tokens.add("admin", name="chief")
    page = person()
    with served(filled) as url:
        port = int(url.rpartition(":")[2])
        page.goto(f"{url}/console/subscriptions/heavy/edit")
        write(page, {"Token": secret})
        press(page, "Sign in")
        write(page, {"Selector": "weight > 1"})
        page.locator("#verdict").get_by_text("Valid.").wait_for()
    write(page, {"Selector": "weight > 12"})
    page.locator("#verdict").get_by_text("The service does not answer").wait_for()
    with served(filled, port):
        write(page, {"Selector": "weight > 123"})
        page.locator("#verdict").get_by_text("Valid.").wait_for()
        press(page, "Save")
        expect(status(page)).to_have_text("The change is saved.")
        assert filled.get("heavy").selector == "weight > 123"
        page.goto(f"{url}/console/subscriptions/heavy/edit")
        (chief,) = filled.tokens.all()
        filled.tokens.revoke(chief.id)
        write(page, {"Selector": "weight > 1234"})
        page.locator("#verdict").get_by_text("You are no longer signed in").wait_for()
        expect(page.get_by_label("Selector")).to_have_value("weight > 1234")


def test_everything_is_done_with_the_keyboard_alone(url, person, filled):
    page = person()
    page.goto(f"{url}subscriptions/heavy")
    press_keys, verdict = page.keyboard.press, page.locator("#verdict")

    def tab_to(wanted, name="textContent", most=20):
        for _ in range(most):
            press_keys("Tab")
            if page.evaluate(f"document.activeElement.{name}") == wanted:
                return
        pytest.fail(f"no {wanted} after {most} tabs")

    tab_to("Skip to the content", most=1)
    press_keys("Enter")
    tab_to("q", most=1)  # the stream of its last delivery
    tab_to("Edit", most=1)
    press_keys("Enter")
    page.get_by_label("Selector").wait_for()
    tab_to("selector", "id")
    press_keys("Control+A")
    page.keyboard.type("weight > 9 =")
    verdict.get_by_text("Line 1").wait_for()
    press_keys("Control+A")
    page.keyboard.type("weight == 9")
    verdict.get_by_role("button").wait_for()
    press_keys("Tab")
    press_keys("Enter")
    verdict.get_by_text("Valid.").wait_for()
    tab_to("Save")
    press_keys("Enter")
    page.get_by_text("The change is saved.").wait_for()
    assert filled.get("heavy").selector == "weight = 9"


def violations(page):
    """What axe-core finds in a page that lets its script run."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"runOnly": AXE}).response["violations"]
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found]


def accessible(page):
    """Check that a page is no wider than its window and that axe-core finds nothing in it."""
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], page.url
    context = page.context.browser.new_context(
        bypass_csp=True, viewport=page.viewport_size, storage_state=page.context.storage_state()
    )
    copy = context.new_page()
    copy.goto(page.url)
    assert violations(copy) == [], page.url
    context.close()


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.nightly)])
def test_dead_letters_are_replayed_in_two_steps_and_followed_and_an_audit_is_read(
    url_with_jobs, person, world, jobs, scheme
):
    from selectroute.spark.replay.replay import Replays

    page = person(viewport={"width": 320, "height": 800}, color_scheme=scheme)
    page.goto(f"{url_with_jobs}jobs/flights/dead-letters")
    letters = page.get_by_role("article")
    follow(page, "Older dead letters")
    expect(letters).to_have_count(5)
    assert page.locator("main img").count() == 0
    accessible(page)
    follow(letters.first, "Replay this one")
    expect(page.locator("main")).to_contain_text("A replay would take 1 dead letter.")
    accessible(page)
    press(page, "Replay 1 dead letter")
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
    press(page, "Audit flights")
    page.get_by_role("heading", name="Audit of flights").wait_for()
    assert "Nothing is half done." in page.get_by_role("listitem").all_inner_texts()
    accessible(page)


@pytest.mark.parametrize(
    ("width", "scheme"),
    after_first(pytest.mark.nightly, (320, "dark"), (1280, "light"), (1280, "dark"), (320, "light")),
)
def test_no_screen_shuts_anybody_out(url, person, width, scheme):
    page = person(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
    found = []
    page.goto(f"{url}queues/orders")
    token = page.locator("tbody a").last.get_attribute("href").partition("token=")[2]
    for path in SCREENS:
        page.goto(url + path.replace("TOKEN", token))
        if path.endswith("#got"):
            press(page, "Get 1 message")
            expect(status(page)).to_contain_text("It has left the queue")
        if "edit" in path:
            press(page, "Try it")
            # The answer is another page, whose script has to run before anybody types.
            page.get_by_role("region", name="Dry run").wait_for()
            page.locator("#verdict").get_by_text("Valid.").wait_for()
            write(page, {"Selector": "wei"})
            page.locator("#names").get_by_role("option").first.wait_for()
        found += [(path, *fault) for fault in violations(page)]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert found == []


def test_markup_that_people_write_is_never_run(url, person, filled):
    markup = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"
    one = filled.register(
        SubscriptionSpec(f"a = '{markup.replace(chr(39), chr(39) * 2)}'", name=markup[:60], topic="a<b>c")
    )
    page = person()
    page.goto(f"{url}subscriptions/new")
    write(page, {"Selector": f"a == '{markup.replace(chr(39), chr(39) * 2)}'"})
    page.locator("#verdict").get_by_role("button").wait_for()
    page.goto(f"{url}who-gets")
    message = '{"properties": {"a": "<img src=x onerror=alert(1)>"}}'
    write(page, {"Message, as JSON": message, "Explain it for": one.id})
    press(page, "Ask")
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

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_another_page_can_neither_frame_the_console_nor_act_in_it(filled, person):
    _, secret = filled.tokens.add("admin")
    page = person()
    with served(filled) as url:
        page.goto(f"{url}/console/sign-in")
        write(page, {"Token": secret})
        press(page, "Sign in")
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
            assert "Subscription heavy" not in page.frames[1].content(), "shown inside another page"
            press(page, "Win")
            expect(page.get_by_role("alert")).to_contain_text("does not come from a page of this console")
    assert filled.get("heavy").status == "active"
