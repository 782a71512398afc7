"""The console with a million subscriptions, in a real Chromium."""

import json
import time

import httpx
import pytest

from bench.workloads.catalogue import WORKLOADS
from selectroute.registry.registry import Registry
from selectroute.selector import Message, Selector
from tests.support.servers.serving import served

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("browser")]

MANY = 1_000_000
WORKLOAD = WORKLOADS["Z"]


def as_message(row):
    headers = {name: value for name, value in row.items() if name.startswith("JMS")}
    return {"headers": headers, "properties": {name: row[name] for name in row if name not in headers}}


@pytest.fixture(scope="module")
def texts():
    return list(WORKLOAD.texts(MANY))


@pytest.fixture(scope="module")
def million(texts, tmp_path_factory):
    with Registry.open(f"sqlite:///{tmp_path_factory.mktemp('million')}/registry.db") as registry:
        registry.import_(
            json.dumps({"id": f"s{number:07}", "selector": text, "topic": f"t/{number % 1_000}"})
            for number, text in enumerate(texts)
        )
        yield registry


@pytest.fixture(scope="module")
def url(million):
    with served(million) as url:
        while not httpx.get(f"{url}/readyz").is_success:
            time.sleep(1)
        yield f"{url}/console/"


def test_they_are_listed_and_searched(url, person, texts):
    page = person()
    page.goto(f"{url}subscriptions")
    ids = page.locator("tbody th")
    assert ids.all_inner_texts() == [f"s{number:07}" for number in range(50)]
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("rowheader", name="s0000050").wait_for()
    assert ids.first.inner_text() == "s0000050"
    page.get_by_label("Search for").fill("s0999999")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**text=s0999999**")
    assert ids.all_inner_texts() == ["s0999999"]
    rare = texts[777_777].split("'")[1]
    page.get_by_label("Search for").fill(rare)
    page.get_by_label("In", exact=True).select_option("selector")
    page.get_by_role("button", name="Search").click()
    expected = [f"s{number:07}" for number, text in enumerate(texts) if rare.casefold() in text.casefold()]
    page.wait_for_url("**field=selector**")
    assert ids.all_inner_texts() == expected[:50]
    page.get_by_label("Search for").fill("nothing of this kind")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("There are none").wait_for()


def test_who_gets_a_message_and_what_a_change_does(url, person, million, texts):
    rows = [as_message(row) for row in WORKLOAD.messages(MANY, 400, 0).to_pylist()]
    topics = [f"t/{number % 7}" for number in range(len(rows))]
    for start in range(0, len(rows), 200):
        million.streams.note_messages(
            "q", [{**rows[at], "topic": topics[at]} for at in range(start, start + 200)]
        )
    page = person()
    for row, topic in list(zip(rows, topics, strict=True))[:10]:
        given = Message.from_json({**row, "topic": topic})
        # The topics divide the subscriptions: a thousandth of them is judged one by one.
        first = int(topic.removeprefix("t/"))
        expected = {
            f"s{number:07}" for number in range(first, MANY, 1_000) if Selector(texts[number]).matches(given)
        }
        page.goto(f"{url}who-gets")
        page.get_by_label("Message, as JSON").fill(json.dumps({**row, "topic": topic}))
        page.get_by_role("button", name="Ask").click()
        page.locator("#found").wait_for()
        assert set(page.locator(".ids a").all_inner_texts()) == expected
    page.goto(f"{url}subscriptions/s0000003/edit")
    page.get_by_label("Selector").fill("weight > 50 OR weight <= 50")
    page.get_by_label("Topic filter").fill("t/3")
    page.get_by_role("button", name="Try it on recent messages").click()
    told = " ".join(page.get_by_role("region", name="Dry run").inner_text().split())
    before, after = Selector(texts[3]), Selector("weight > 50 OR weight <= 50")
    kept = [Message.from_json(row) for row, topic in zip(rows, topics, strict=True) if topic == "t/3"]
    gained = sum(after.matches(one) and not before.matches(one) for one in kept)
    assert f"gains {gained:,}" in told and gained
