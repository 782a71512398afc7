"""Screenshots of the console on real data: a stream of flights, its subscriptions, a queue and dead letters.

python streaming/console/pictures.py [FOLDER]

It starts a service and a stream in a temporary folder, as their commands do, changes a selector while the
stream runs, and writes a PNG file of each screen, by default next to this file. It needs the extra ``test``
and Chromium.
"""

from __future__ import annotations

import io
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright

import selectroute as sr

MESSAGES: Final = 24_000
SUBSCRIPTIONS: Final = 5_000
WATCHED: Final = "watch-jfk-lax"
"""Subscription that the demo changes while its stream runs."""

WIDTH, HEIGHT = 1100, 760

_SECONDS: Final = 180.0
_COLORS: Final = 128
"""Colours of a picture: the pages have few, and a file has a third of the bytes."""

LATE: Final = {
    "id": "late-to-boston",
    "selector": "JMSType = 'delayed' AND dest = 'BOS' AND arr_delay > 60",
    "destination": {"kind": "queue", "name": "LATE.ARRIVALS"},
    "labels": {"team": "ground"},
}

LATE_FLIGHT: Final = (
    '{"headers": {"JMSType": "delayed"}, "properties": {"origin": "JFK", "dest": "LAX", "dep_delay": 45, '
    '"carrier": "AA"}, "topic": "flights/JFK/LAX"}'
)
BROKEN: Final = '{"headers": {"JMSType": "delayed"}, "properties": {"dest": "BOS", "arr_delay": 75}\n'


def main(folder: Path) -> None:
    """Take all pictures and write them to a folder."""
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch)) as url, sync_playwright() as driver:
        found = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
        if found is None:
            raise SystemExit("there is no Chromium on this machine")
        # Without its sandbox, which the root of a container cannot have; it opens pages of ours alone.
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        for name, open_screen in SCREENS.items():
            open_screen(page, f"{url}/console")
            file = folder / f"{name}.png"
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            few = picture.quantize(_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            few.save(file, optimize=True)
            print(file, f"{file.stat().st_size:,} bytes")
        browser.close()


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Run a service, and a stream that has routed all flights; gives the service's URL."""
    demo, messages, output = folder / "demo", folder / "messages", folder / "output"
    counts = ["--messages", str(MESSAGES), "--subscriptions", str(SUBSCRIPTIONS), "--verify", "0"]
    _run("demo", "--out", str(demo), *counts)
    rows = [json.loads(line) for line in (demo / "subscriptions.jsonl").read_text().splitlines()]
    (changed,) = (row for row in rows if row["from"] > 1)
    first = folder / "subscriptions.jsonl"
    fields = "id", "topic", "selector", "dialect"
    registered = [*({name: row[name] for name in fields} for row in rows if row["from"] == 1), LATE]
    first.write_text("".join(f"{json.dumps(row)}\n" for row in registered))
    port = _free_port()
    url, registry = f"http://127.0.0.1:{port}", f"sqlite:///{folder / 'registry.db'}"
    _run("subscription", "import", str(first), "--registry", registry)
    service = ["serve", "--registry", registry, "--port", str(port), "--job", f"flights={output}"]
    stream = ["stream", "run", "--input", str(messages), "--registry", url, "--output", str(output)]
    stream += ["--snapshots", f"{folder / 'registry.db'}.snapshots", "--queues", registry]
    stream += ["--name", "flights", "--max-files-per-trigger", "1", "--sample-messages", "100"]
    waiting = sorted((demo / "messages").iterdir())
    messages.mkdir()
    with _command(*service, "--log-level", "warning"), httpx.Client(base_url=url) as client:
        _wait(lambda: client.get("/readyz").is_success, "the service")
        _run("queue", "create", "LATE.ARRIVALS", "--queues", registry)
        with _command(*stream):
            for number, file in enumerate(waiting):
                file.rename(messages / file.name)
                _wait(partial(_has_routed, client, number + 1), "the next batch")
                if number == len(waiting) // 2:
                    with sr.connect(url) as store:
                        store.replace(WATCHED, sr.SubscriptionSpec(changed["selector"]))
            (messages / "late.jsonl").write_text(BROKEN * 3)
            _wait(partial(_has_routed, client, len(waiting) + 1), "the last batch")
            time.sleep(2)  # the sample and the last report are sent a second later
            yield url


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "selectroute", *arguments], check=True)


def _has_routed(client: httpx.Client, batches: int) -> bool:
    streams = client.get("/v1/streams").raise_for_status().json()["items"]
    return any(one["newest"] and one["newest"]["batch"] + 1 >= batches for one in streams)


@contextmanager
def _command(*arguments: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "selectroute", *arguments])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _wait(is_there: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _SECONDS
    while True:
        try:
            if is_there():
                return
        except httpx.TransportError:  # not listening yet
            pass
        if time.monotonic() > until:
            raise SystemExit(f"{what} did not come within {_SECONDS:g} seconds")
        time.sleep(0.2)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


# ---- the screens


def _path(path: str) -> Callable[[Page, str], Any]:
    return lambda page, console: page.goto(f"{console}/{path}")


def _typed(page: Page, console: str) -> None:
    page.goto(f"{console}/subscriptions/{WATCHED}/edit")
    page.get_by_label("Selector").fill("origin = 'JFK' AND dest == 'LAX'")
    page.locator("#verdict").get_by_role("button").wait_for()


def _tried(page: Page, console: str) -> None:
    page.goto(f"{console}/subscriptions/{WATCHED}/edit")
    page.get_by_label("Selector").fill("origin = 'JFK' AND dest IN ('LAX', 'SFO') AND dep_delay > 30")
    page.get_by_role("button", name="Try it on recent messages").click()
    page.locator("#verdict").get_by_text("Valid.").wait_for()
    _to_the_top(page.get_by_role("region", name="Dry run"))


def _asked(page: Page, console: str) -> None:
    page.goto(f"{console}/who-gets")
    page.get_by_label("Message, as JSON").fill(LATE_FLIGHT)
    page.get_by_label("Explain it for the subscription").fill(WATCHED)
    page.get_by_role("button", name="Ask").click()
    _to_the_top(page.get_by_role("button", name="Ask"))


def _to_the_top(place: Locator) -> None:
    place.evaluate("place => place.scrollIntoView()")


def _batch_list(page: Page, console: str) -> None:
    page.goto(f"{console}/overview")
    page.locator("main a[href*='/streams/']").first.click()
    page.locator("figure").nth(1).evaluate("(one) => one.scrollIntoView()")


def _previewed(page: Page, console: str) -> None:
    page.goto(f"{console}/jobs/flights/dead-letters")
    page.get_by_role("link", name="Replay").first.click()


def _audited(page: Page, console: str) -> None:
    page.goto(f"{console}/jobs")
    page.get_by_role("button", name="Audit").click()


SCREENS: Final[dict[str, Callable[[Page, str], Any]]] = {
    "overview": _path("overview"),
    "subscriptions": _path("subscriptions?text=JFK&field=selector"),
    "subscription": _path(f"subscriptions/{WATCHED}"),
    "editor": _typed,
    "dry-run": _tried,
    "who-gets": _asked,
    "many": _path("bulk?action=pause&text=JFK&field=selector"),
    "queue": _path("queues/LATE.ARRIVALS"),
    "dead-letters": _path("jobs/flights/dead-letters"),
    "replay": _previewed,
    "batches": _batch_list,
    "audit": _audited,
}
"""Function that opens each screen, by the name of its picture."""

if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
