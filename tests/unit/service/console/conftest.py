"""A service with its console in this process, and a real browser in front of one that listens."""

import shutil
import warnings
from contextlib import contextmanager

import pytest

import selectroute as sr
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.publisher import RegistryPublisher
from selectroute.service.app import QUEUE_MANAGER, create_app
from selectroute.service.console.console import WithConsole
from tests.support.components import missing

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette's test client announces another HTTP library
    from starlette.testclient import TestClient

OWN = {"Sec-Fetch-Site": "same-origin"}
"""What a browser says of a request that a page of the console sends."""


@contextmanager
def console_of(registry, **options):
    """A client of a service with its console, without a browser."""
    app = WithConsole(create_app(registry, **options), QUEUE_MANAGER)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def shown(client, path, **params):
    """The text of a page of the console."""
    return client.get(f"/console/{path}", params=params or None).text


def sent(client, path, data, **options):
    """The answer to a form of the console."""
    return client.post(f"/console/{path}", data=data, headers=OWN, **options)


MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def world(tmp_path, registry):
    """A job with thirty dead letters, which have markup in them."""
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from selectroute.spark.folder import OutputFolder
    from tests.support.world import World, note_plan

    registry.register(SubscriptionSpec("color = 'red'"), id="red")
    made = World(tmp_path / "job")
    with RegistryPublisher(registry, made.snapshots) as published:
        published.catch_up()
    folder = OutputFolder(made.job())
    folder.claim()
    folder.release()
    file = made.drop_json("0.jsonl", *(f"{{{MARKUP} {number}" for number in range(30)))
    note_plan(made.job(), 0, file)
    router = made.router()
    router.route(0, [file], "q")
    router.close()
    return made


@pytest.fixture
def jobs(world):
    """The folder of the job, as `selectroute serve` is told of them."""
    from selectroute.spark.job_administration import JobFolder

    return {"flights": JobFolder(world.output)}


@pytest.fixture(scope="module")
def chromium():
    """The Chromium of this machine. It ends with its module: until then Playwright's event loop runs in this
    thread, where other tests could run none of their own.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if found is None:
        missing("there is no Chromium on this machine")
    sr.warm()  # no page waits for the compiler
    with playwright.sync_playwright() as driver:
        # Without its sandbox, which the root of a container cannot have; it opens pages of ours alone.
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        playwright.expect.set_options(timeout=20_000)
        with _clicks_that_wait(playwright.Locator):
            yield browser
        browser.close()


@contextmanager
def _clicks_that_wait(locator):
    """Clicks end when the page that they lead to is read: Playwright's own end when its first bytes come, so
    that a test may look at half a page.
    """
    click = locator.click

    def click_and_wait(self, **options):
        click(self, **options)
        self.page.wait_for_load_state()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locator, "click", click_and_wait)
        yield


@pytest.fixture
def person(chromium):
    """A function that opens a window of a new person's browser; what its pages ask other hosts for, and the
    errors of their scripts, fail the test.
    """
    opened, wrong = [], []

    def open_window(**options):
        context = chromium.new_context(**options)
        opened.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: wrong.append(request.url) if _is_foreign(request.url) else None)
        return page

    yield open_window
    for context in opened:
        context.close()
    assert wrong == []


def _is_foreign(url):
    return not url.startswith(("http://127.0.0.1:", "http://localhost:", "about:", "data:"))
