"""The log of a service: JSON for machines, short lines for a person who looks at a terminal."""

import io
import json
import re
import sys

import pytest

from selectroute.registry.errors import ReadOnlyError
from selectroute.service.logs import configure, log
from tests.support.logs import log_as_before

LEVELS = ("debug", "info", "warning", "error")


@pytest.fixture(autouse=True)
def _log_as_before():
    with log_as_before():
        yield


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("form", "stream", "in_json"),
    [
        (None, io.StringIO, True),
        (None, Terminal, False),
        ("text", io.StringIO, False),
        ("json", Terminal, True),
    ],
)
def test_a_terminal_is_told_in_short_lines_and_all_else_in_json(
    client, registry, monkeypatch, form, stream, in_json
):
    said = stream()
    monkeypatch.setattr(sys, "stderr", said)
    configure("info", form)
    client.put("/v1/subscriptions/secret", json={})
    client.get("/v1/subscriptions/nowhere")
    lines = said.getvalue().splitlines()
    if in_json:
        assert [json.loads(line)["status"] for line in lines] == [201, 404]
        return
    assert all(len(line) < 80 for line in lines)
    where = "/v1/subscriptions/{id}  anybody"
    assert re.fullmatch(rf"\d\d:\d\d:\d\d PUT    201 +[\d.,]+ ms  {re.escape(where)}", lines[0])
    assert re.fullmatch(rf"\d\d:\d\d:\d\d GET    404 +[\d.,]+ ms  {re.escape(where)}", lines[1])


def test_what_failed_names_its_request_and_says_why(client, registry, monkeypatch):
    def fails(*_, **__):
        raise error

    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(registry, "submit", fails)
    configure("info", "text")
    error = ReadOnlyError("the disk\nis full")
    id = client.post("/v1/subscriptions", json={}).headers["x-request-id"]
    first, second = said.getvalue().splitlines()
    assert first.endswith(f" warning: request refused (request {id}, reason the disk is full)")
    assert " POST   503 " in second and second.endswith(id)
    error = RuntimeError("broken")
    client.post("/v1/subscriptions", json={})
    assert "error: request failed (request" in said.getvalue()
    assert "Traceback" in said.getvalue() and "RuntimeError: broken" in said.getvalue()


@pytest.mark.parametrize("level", LEVELS)
def test_the_level_says_what_is_left_out(monkeypatch, level):
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    configure(level, "text")
    for one in LEVELS:
        getattr(log(), one)("something", number=1)
    told = [line.split()[1].rstrip(":") for line in said.getvalue().splitlines()]
    assert told == list(LEVELS[LEVELS.index(level) :])
    assert said.getvalue().splitlines()[-1].endswith("error: something (number 1)")
