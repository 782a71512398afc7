"""What must be true of the insides of a queue in memory after every operation."""

from __future__ import annotations

from selectroute.queues.memory.blocks import SHIFT
from selectroute.queues.memory.id_table import _width
from selectroute.queues.memory.postings import posting_of, size_of, walk
from selectroute.queues.message.message import NO_ID
from selectroute.queues.message.queue_key import ARRIVALS, URGENCY
from selectroute.queues.message.record import Field


def check(queue):
    """Assert every invariant of the catalogue, its blocks and what finds messages in them."""
    catalogue = queue._store._catalogue
    records = list(catalogue._blocks.walk())
    check_blocks(catalogue._blocks)

    def wanted_of(key_of, chosen):
        wanted = {}
        for record in chosen:
            wanted.setdefault(key_of(record), []).append(posting_of(record))
        return wanted

    made = catalogue._by_msg_id.prefix
    given = [record for record in records if not is_own(record, made)]
    borrowed = sum(record.msg_id.startswith(made) for record in given)
    assert catalogue._by_msg_id.borrowed == borrowed, "it knows how many ids are another's"
    of_ids = [(Field.MSG_ID, catalogue._by_msg_id._given, given)]
    of_ids += [
        (field, ids, [record for record in records if record[field] != NO_ID])
        for field, ids in (
            (Field.CORREL_ID, catalogue._by_correl_id),
            (Field.GROUP_ID, catalogue._by_group_id),
        )
    ]
    for field, ids, chosen in of_ids:
        check_ids(ids, wanted_of(lambda record, field=field: record[field], chosen))
    for index in catalogue._indexes.values():
        wanted = wanted_of(index.key_of, records)
        assert set(index.postings._listed) == set(wanted), "there is a list for every key and no other"
        for key, listed in index.postings._listed.items():
            check_listed(listed, wanted[key])
    expiring = sorted((record.expiration, record.queue_key) for record in records if record.expiration)
    assert list(catalogue.expiring) == expiring, "what expires is known"


def is_own(record, prefix):
    """Whether a message has the id that the queue made for it."""
    return record.msg_id == prefix + (record.queue_key & ARRIVALS).to_bytes(8, "big")


def check_blocks(blocks):
    """Assert the invariants of messages in blocks."""
    records = list(blocks.walk())
    places = [record.queue_key for record in records]
    assert places == sorted(set(places)), "the order is sorted by place"
    assert len(records) == blocks.count, "it counts its messages"
    assert all(blocks.get(place) == record for place, record in zip(places, records, strict=True))
    assert blocks.first() == (records[0] if records else None), "the first is the first"
    assert sum(block.count for block in blocks._blocks.values()) == blocks.count
    assert all(block.count for block in blocks._blocks.values()), "a block has a message"
    runs = {
        urgency << URGENCY - SHIFT | number
        for number, block in blocks._blocks.items()
        for urgency in block.runs
    }
    assert list(blocks._runs) == sorted(runs), "the runs are those of the blocks"
    for block in blocks._blocks.values():
        assert (block.few is None) == bool(block.packed), "a block is packed, or it is not"


def check_ids(ids, wanted):
    """Assert the invariants of a table of ids, and that it has these places by id and no other."""
    hashes = dict(ids.walk())
    assert len(hashes) == sum(1 for _ in ids.walk()), "a hash is there once"
    together = {}
    for id, places in wanted.items():
        together.setdefault(hash(id), []).extend(places)
        assert ids.get(id) is not None, "each id is found"
    assert set(hashes) == set(together), "there is a slot for every id and no other"
    for hashed, listed in hashes.items():
        check_listed(listed, sorted(together[hashed]))
    lists = [listed for listed in ids._lists if listed is not None]
    assert sorted(number for number, listed in enumerate(ids._lists) if listed is None) == sorted(ids._free)
    shards = distinct(ids._shards)
    assert {len(shard) for shard in shards} == {ids._last + 2}
    numbers = []
    for shard in shards:
        width = _width(shard)
        slots = [shard[slot : slot + width] for slot in range(0, len(shard), width)]
        firsts = [slot[width > 2] for slot in slots]
        assert 0 in firsts, "a shard has gaps"
        numbers += [~found for found in firsts if found < 0]
        for slot, found in zip(slots, firsts, strict=True):
            assert width == 2 or found > 0 or not any(slot[2:]), "nothing is behind a gap or a list"
    assert sorted(number >> 1 for number in numbers if number & 1) == sorted(
        set(range(len(ids._lists))) - set(ids._free)
    )
    assert len(numbers) == len(set(numbers)) == len(lists) + len(ids._rows), "each list is that of one slot"
    assert all(size_of(listed) > 1 for listed in lists), "there are only lists of several"


def distinct(shards):
    """The shards that several numbers may choose, each once."""
    return list({id(shard): shard for shard in shards}.values())


def check_listed(listed, places):
    """Assert that a list has these places, in order."""
    assert list(walk(listed)) == places, "a list has its places in order"
    assert size_of(listed) == len(places)
    assert (type(listed) is int) == (len(places) == 1), "one place is no list"
