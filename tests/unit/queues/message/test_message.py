"""What selectors see of a message on a queue."""

from __future__ import annotations

from selectroute.queues.memory import MemoryQueue
from selectroute.queues.message.message import value_reader
from selectroute.selector import DIALECTS
from selectroute.selector.fields import DERIVED
from tests.support.queue_calls import id_of


def test_what_selectors_see_is_what_the_message_for_selectors_has():
    """Without making that message; by every name, derived fields too, and before and after a backout."""
    queue = MemoryQueue()
    queue.put()
    ids = {"msg_id": id_of("m"), "correl_id": id_of("c"), "group_id": id_of("g")}
    queue.put(
        **ids, msg_seq_number=2, priority=9, persistence=True, expiry=100, properties={"a.b": 1, "a": 2}
    )
    texts = {"JMSCorrelationID": "order-7", "JMSXGroupID": "x" * 30, "JMSType": "mcd://d/s/t?format=f"}
    queue.put(properties={**texts, "JMSReplyTo": "queue://QM/Q", "JMSXGroupSeq": 3, "weight": 1.5})
    names = {"a.b", "a", "weight", "missing", "@invalid-names", "@missing"}
    names |= {f"@{name}" for name in DERIVED} | {name for name in DERIVED if ":" not in name}
    names |= {name for dialect in DIALECTS.values() for name in dialect.headers}
    for _ in range(2):
        unit = queue.unit()
        for _ in range(3):
            message = queue.get(syncpoint=unit)
            quick = value_reader(message.descriptor, message.properties)
            for name in names:
                assert quick(name) == message.selector_message.value(name), name
        unit.backout()
