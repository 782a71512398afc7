from __future__ import annotations

from selectroute.service.http import rates
from selectroute.service.http.rates import Rates


def test_a_bucket_fills_again_and_no_further_than_its_size():
    now = [0.0]
    limited = Rates(2.0, 3, clock=lambda: now[0])
    assert [limited.wait_seconds("a") for _ in range(4)] == [0, 0, 0, 1]
    now[0] = 0.5
    assert [limited.wait_seconds("a") for _ in range(2)] == [0, 1]
    now[0] = 100.0
    assert [limited.wait_seconds("a") for _ in range(4)] == [0, 0, 0, 1]
    assert Rates(0.1, 1, clock=lambda: 0.0).wait_seconds("b") == 0


def test_without_a_rate_nobody_waits():
    assert {Rates(None, 1).wait_seconds("a") for _ in range(1_000)} == {0}


def test_so_many_callers_are_remembered(monkeypatch):
    monkeypatch.setattr(rates, "REMEMBERED", 2)
    limited = Rates(1.0, 1, clock=lambda: 0.0)
    assert [limited.wait_seconds(caller) for caller in "abca"] == [0, 0, 0, 0]
    assert limited.wait_seconds("a") == 1
