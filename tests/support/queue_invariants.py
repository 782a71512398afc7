"""What must be true of the insides of a queue in memory after every operation."""

from __future__ import annotations

from selectroute.queues import memory
from selectroute.queues.message.record import Field
from selectroute.selector.fields import NO_ID


def check(queue):
    """Assert every invariant of the messages, their order and what finds them."""
    messages = queue._store._messages
    queue_keys = sorted(messages._records)
    assert [record.queue_key for record in messages._walk(-1)] == queue_keys, "the order has each key once"
    check_runs(messages._order)
    for field, by_id in (
        (Field.MSG_ID, messages._by_msg_id),
        (Field.CORREL_ID, messages._by_correl_id),
        (Field.GROUP_ID, messages._by_group_id),
    ):
        check_index(by_id, messages, lambda record, field=field: record[field])
    for index in messages._indexes.values():
        check_index(index.by_values, messages, index.values_of)
    expiring = [messages._records[queue_key] for queue_key in queue_keys]
    expiring = sorted((record.expiration, record.queue_key) for record in expiring if record.expiration)
    assert list(messages.expiring) == expiring, "what expires is known"


def check_runs(order):
    """Assert that every run has a key, and that the runs are in order."""
    assert list(order._runs) == sorted(order._bits)
    assert all(0 < bits < 1 << memory._WITHIN + 1 for bits in order._bits.values())


def check_index(by_values, messages, value_of):
    """Assert that the keys of the messages are under their values, zeros excepted, and no others."""
    wanted = {}
    for queue_key, record in sorted(messages._records.items()):
        if value_of(record) != NO_ID:
            wanted.setdefault(value_of(record), []).append(queue_key)
    assert {value: list(memory._behind(keys, -1)) for value, keys in by_values.items()} == wanted
    for keys in by_values.values():
        assert (type(keys) is int) == (memory._size(keys) == 1), "a single key is no list"
        assert type(keys) is not list or len(keys) <= memory._FEW, "a list is short"
