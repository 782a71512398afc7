"""A short run of the fuzz script in each dialect, and that it would find a fault."""

from __future__ import annotations

import pytest

from selectroute.selector import DIALECTS, Selector
from tests.properties.fuzz import selectors as fuzz

SHORT = 1_200


@pytest.mark.parametrize("name", DIALECTS)
def test_mutated_selectors_keep_every_promise(name):
    tally, failure = fuzz.run(fuzz.Fuzzer(name, seed=1), range(SHORT))
    assert failure is None, failure
    assert tally.texts == SHORT
    assert SHORT / 10 < tally.valid < SHORT * 9 / 10, "both sides of the line are tried"
    assert len(tally.kinds) > 15, "errors of many kinds come up"
    assert min(tally.truths.values()) > 0, "every truth comes up"


def test_a_text_is_known_by_its_number():
    one, other = (fuzz.Fuzzer("ibm-mq", seed=7) for _ in range(2))
    assert [one.case(number) for number in range(50)] == [other.case(number) for number in range(50)]
    assert fuzz.Fuzzer("ibm-mq", seed=8).case(3) != one.case(3)


@pytest.mark.parametrize(
    "broken",
    [lambda selector: f"{selector.text} ", lambda selector: "a", lambda selector: 1 // 0],
    ids=["prints as it stands", "prints something else", "raises"],
)
def test_a_fault_is_found_and_can_be_replayed(broken, monkeypatch, capsys):
    monkeypatch.setattr(Selector, "canonical", property(broken))
    assert fuzz.main(["--count", "300", "--dialect", "jms"]) == 1
    report = capsys.readouterr().out
    replay = report.split("replay: python -m tests.properties.fuzz.selectors ")[1].split()
    with pytest.raises((AssertionError, ZeroDivisionError)):
        fuzz.main(replay)


def test_what_never_ends_is_a_fault(monkeypatch):
    monkeypatch.setattr(fuzz, "HANG", 0.05)

    def forever(selector):
        while True:
            pass

    monkeypatch.setattr(Selector, "canonical", property(forever))
    _, failure = fuzz.run(fuzz.Fuzzer("jms", seed=1), range(300))
    assert failure is not None and "Hang" in failure
