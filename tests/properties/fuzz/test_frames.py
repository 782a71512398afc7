"""A short run of the fuzz script of AMQP, and that it would find a fault."""

from __future__ import annotations

import pytest

from selectroute.amqp.session import Receiver, Session
from tests.properties.fuzz import frames as fuzz


def test_hostile_conversations_keep_every_promise():
    seen, failure = fuzz.run(1, range(400))
    assert failure is None, failure
    assert min(seen[name] for name in ("TransferReceived", "DeliveriesSettled", "TransactionDischarged")) > 10
    assert seen["ConnectionClosed"] == 400


@pytest.mark.parametrize(
    ("owner", "method", "broken"),
    [
        (Session, "on_disposition", lambda session, disposition: 1 // 0),
        (Session, "write", lambda session, performative: session.output.write_frame(0, b"\xff")),
        (Receiver, "lost", lambda link: [Receiver._fail(link, fuzz.AmqpError("a", "b")) for _ in range(2)]),
    ],
    ids=["raises", "writes what is no frame", "ends twice"],
)
def test_a_fault_is_found_and_can_be_replayed(owner, method, broken, monkeypatch, capsys):
    monkeypatch.setattr(owner, method, broken)
    assert fuzz.main(["--count", "400"]) == 1
    report = capsys.readouterr().out
    replay = report.split("replay: python -m tests.properties.fuzz.frames ")[1].split()
    with pytest.raises((AssertionError, ZeroDivisionError, ValueError)):
        fuzz.main(replay)
