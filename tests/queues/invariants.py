"""What must be true of the insides of a queue in memory after every operation."""

from __future__ import annotations

from selectroute.queues.message import NO_ID
from selectroute.queues.positions import CORREL_ID, EXPIRATION, GROUP_ID, MSG_ID
from selectroute.queues.postings import size_of, walk
from selectroute.queues.record import PLACE


def check(queue):
    """Assert every invariant of the catalogue, the order and the postings of a queue."""
    catalogue = queue._holding._catalogue
    order = catalogue.order
    records = list(order.walk())
    places = [record[PLACE] for record in records]
    assert places == sorted(set(places)), "the order is sorted by place"
    assert len(records) == order.count, "it counts its messages"
    assert all(order.get(record[PLACE]) is record for record in records), "each is found in its place"
    assert order.first() is (records[0] if records else None), "the first is the first"
    assert list(order._numbers) == sorted(order._runs), "the numbers are those of the runs"
    assert all(run if isinstance(run, dict) else run[-2] >= 32 for run in order._runs.values())

    def has(postings, key_of, chosen):
        wanted = {}
        for record in chosen:
            wanted.setdefault(key_of(record), []).append(record)
        assert set(postings._listed) == set(wanted), "there is a list for every key and no other"
        for key, listed in postings._listed.items():
            assert list(walk(listed)) == wanted[key], "a list has its messages in order"
            assert size_of(listed) == len(wanted[key])
            assert (type(listed) is tuple) == (len(wanted[key]) == 1), "one message has no list"

    has(catalogue._by_msg_id, lambda record: record[MSG_ID], records)
    for field, postings in ((CORREL_ID, catalogue._by_correl_id), (GROUP_ID, catalogue._by_group_id)):
        own = [record for record in records if record[field] is not NO_ID]
        assert all(record[field] != NO_ID for record in own), "zeros are that one object"
        has(postings, lambda record, field=field: record[field], own)
    for index in catalogue._indexes.values():
        has(index.postings, index.key_of, records)
    expiring = sorted((record[EXPIRATION], record[PLACE]) for record in records if record[EXPIRATION])
    assert list(catalogue.expiring) == expiring, "what expires is known"
