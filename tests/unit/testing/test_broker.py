"""The broker of the tests itself: what the tests of faults take for granted."""

from __future__ import annotations

import pytest

from tests.support.components import KAFKA

pytestmark = KAFKA


@pytest.mark.nightly
def test_what_was_acknowledged_is_there_after_a_stop_and_after_a_kill(kafka):
    topic = kafka.create("kept")
    for n, end in enumerate((kafka.stop, kafka.kill)):
        kafka.produce(topic, [(0, None, b"%d" % n, [("a", b"1")])])
        end()
        kafka.start()
    assert [(one.offset(), one.value(), one.headers()) for one in kafka.records(topic)] == [
        (0, b"0", [("a", b"1")]),
        (1, b"1", [("a", b"1")]),
    ]
