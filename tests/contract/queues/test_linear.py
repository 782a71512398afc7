"""Queues against a list that is scanned from its beginning: random puts, gets, browsing, units and expiry."""

from __future__ import annotations

import random
from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import selectroute as sr
from selectroute.queues import memory
from selectroute.queues.memory import MemoryQueue
from selectroute.queues.message.message import FIELDS
from tests.support.components import NIGHTLY, POSTGRES
from tests.support.linear_queue import FIELDS as LINEAR_FIELDS
from tests.support.linear_queue import NONE, Entry, LinearQueue, Place
from tests.support.queue_calls import EVERY_KIND, hex_of, id_of
from tests.support.queue_invariants import check
from tests.support.strategies import checked_selectors
from tests.support.strategies import messages as generated_messages

IDS = (NONE, id_of("a"), id_of("b"))
SELECTORS = (
    None, "", "color = 'blue'", "color = 'red' AND weight > 1", "weight = 2",
    "weight IN ('2') OR color = 'blue' AND JMSPriority = 1", "color IN ('red', 'blue') AND weight <> 2",
    "JMSPriority < 2", "color IS NULL", "NOT (color = 'blue')", "JMSXDeliveryCount = 2",
    "JMSDeliveryMode = 'NON_PERSISTENT' AND color LIKE 'b%'", f"JMSMessageID = '{hex_of(IDS[1])}'",
    f"JMSCorrelationID = '{hex_of(IDS[2])}'", f"JMSCorrelationID = '{hex_of(NONE)}'",
    f"JMSCorrelationID = '{hex_of(IDS[1])}' AND weight = 1",
    f"JMSMessageID IN ('{hex_of(IDS[1])}', '{hex_of(IDS[2])}', 'x') AND JMSXGroupID = '{hex_of(IDS[1])}'",
    "JMSCorrelationID IS NULL AND JMSXGroupID IS NULL", "JMSMessageID = 'none'",
)  # fmt: skip


@pytest.fixture(autouse=True)
def small_parts() -> Iterator[None]:
    """Few messages are many: runs of four keys, and lists of four keys at most."""
    with mock.patch.multiple(memory, _RUN=2, _WITHIN=3, _FEW=4):
        yield


CHOICES = {
    "msg_id": IDS,
    "correl_id": IDS,
    "group_id": IDS,
    "msg_seq_number": (1, 2, 3),
    "offset": (0, 1, 2),
}
"""What the fields of messages are, and those of requests."""

requests = st.fixed_dictionaries(
    {
        "match": st.integers(0, 63) | st.sampled_from([0, 1, 2, 3, 4, 7]),
        **{name: st.sampled_from(values) for name, values in CHOICES.items()},
        "token": st.integers(0, 30),
        "selector": st.sampled_from(SELECTORS) | st.none(),
        "logical_order": st.booleans() | st.just(False),
    }
)
messages = st.fixed_dictionaries(
    {
        **{name: st.sampled_from(values) for name, values in CHOICES.items()},
        "last_in_group": st.booleans(),
        "priority": st.integers(0, 2),
        "expiry": st.sampled_from([-1, -1, -1, 5, 20]),
        "body": st.sampled_from([b"", b"x", b"xy"]),
        "properties": st.fixed_dictionaries(
            {}, optional={"color": st.sampled_from(["red", "blue"]), "weight": st.integers(1, 3)}
        ),
    }
)


class Pair:
    """A queue and the list that it must agree with."""

    def __init__(self, make, clock):
        self.clock = clock
        self.queue = make()
        self.linear = LinearQueue(now_ms=int(clock.now * 1000))
        self.cursor = self.queue.cursor()
        self.place = Place()
        self.browses_logical = None
        self.unit = None
        self.in_unit = ([], [])
        self.before_unit = None
        self.tokens = [bytes(16)]

    def put(self, message, in_unit=False):
        unit = self.unit if in_unit else None
        made = self.queue.put(**message, syncpoint=unit)
        self.tokens.append(made.msg_token)
        expiry = message["expiry"]
        entry = Entry(
            **{name: value for name, value in message.items() if name not in ("expiry", "msg_id")},
            arrival=len(self.tokens),
            msg_id=made.msg_id,
            msg_token=made.msg_token,
            put_ms=self.linear.now_ms,
            expires_ms=None if expiry < 0 else self.linear.now_ms + 100 * expiry,
        )
        (self.in_unit[0] if unit else self.linear.entries).append(entry)

    def asked(self, request):
        """A request as the queue takes it, and as the list does."""
        mask, selector = request["match"], request["selector"]
        given = {name: request.get(name) for name in LINEAR_FIELDS}
        given["msg_token"] = self.tokens[request["token"] % len(self.tokens)]
        options = {name: given[name] for bit, name in enumerate(LINEAR_FIELDS) if mask >> bit & 1}
        parsed = sr.Selector(selector, "ibm-jms") if selector else None
        return {**options, "selector": selector}, (mask, given, parsed)

    def get(self, request, in_unit=False):
        options, wanted = self.asked(request)
        logical = request["logical_order"]
        unit = self.unit if in_unit else None
        handle = self.linear.handle
        found = self.linear.find_logical(handle, *wanted) if logical else self.linear.find(*wanted)
        if not self.agree(found, self.queue.get, **options, logical_order=logical, syncpoint=unit):
            return
        before = handle.group
        self.linear.entries.remove(found)
        self.linear.move(handle, found, logical)
        if unit:
            self.in_unit[1].append(found)
            if logical and self.before_unit is None:
                self.before_unit = (before,)
        if unit and logical:
            self.after_unit = handle.group
        self.moved = handle.group

    def browse(self, request, first=False):
        options, wanted = self.asked(request)
        logical = request["logical_order"]
        call = self.cursor.first if first else self.cursor.next
        place = Place() if first else self.place
        if not first and self.browses_logical not in (None, logical):
            found = 2259
        elif logical:
            found = self.linear.find_logical(place, *wanted, place.begun)
        else:
            found = self.linear.find(*wanted, place.key)
        if self.agree(found, call, **options, logical_order=logical):
            if first:
                self.place = place
            self.linear.move(self.place, found, logical)
            self.browses_logical = logical

    def under(self, get=False, in_unit=False):
        unit = self.unit if in_unit else None
        found = next((one for one in self.linear.visible() if one.key == self.place.key), 2034)
        if not get:
            self.agree(found, self.cursor.under)
        elif self.agree(found, self.cursor.get_under, syncpoint=unit):
            self.linear.entries.remove(found)
            if unit:
                self.in_unit[1].append(found)

    def agree(self, found, call, **given):
        """Whether there is a message, of which both say that it is the one."""
        if found is None or isinstance(found, int):
            with pytest.raises(sr.MQError) as raised:
                call(**given)
            assert raised.value.reason == (found or 2033)
            return False
        message = call(**given)
        descriptor = message.descriptor
        assert descriptor.msg_token == found.msg_token
        assert descriptor.backout_count == found.backout_count
        assert message.body == found.body
        assert (descriptor.msg_id, descriptor.priority) == (found.msg_id, found.priority)
        if found.expires_ms is not None:
            assert descriptor.expiry == -(-(found.expires_ms - self.linear.now_ms) // 100)
        return True

    def end(self, commit):
        puts, gets = self.in_unit
        if commit:
            self.unit.commit()
            self.linear.entries += puts
        else:
            self.unit.backout()
            for entry in gets:
                self.linear.back(entry)
        self.unit, self.in_unit = None, ([], [])

    def later(self, tenths):
        self.clock.now += tenths / 10
        self.linear.now_ms = int(self.clock.now * 1000)


def machine_of(make, clock):
    """The machine for one kind of queue."""

    class Machine(Pair, RuleBasedStateMachine):
        def __init__(self):
            RuleBasedStateMachine.__init__(self)
            clock.now = 1_700_000_000.0
            Pair.__init__(self, make, clock)

        rule_put = rule(message=messages, in_unit=st.booleans())(Pair.put)
        rule_browse = rule(request=requests, first=st.booleans())(Pair.browse)
        rule_under = rule(get=st.booleans(), in_unit=st.booleans())(Pair.under)
        rule_later = rule(tenths=st.integers(1, 12))(Pair.later)

        @rule(some=st.lists(messages, min_size=3, max_size=8))
        def put_several(self, some):
            for message in some:
                self.put(message)

        @rule(request=requests, in_unit=st.booleans())
        def get_one(self, request, in_unit):
            # What backout does to a thread's group has tests of its own.
            self.get(request, in_unit and not request["logical_order"])

        @precondition(lambda self: self.unit is None)
        @rule()
        def begin(self):
            self.unit = self.queue.unit()

        @precondition(lambda self: self.unit is not None)
        @rule(commit=st.booleans())
        def end_unit(self, commit):
            self.end(commit)

        @invariant()
        def as_deep(self):
            assert self.queue.depth == len(self.linear.visible())
            if isinstance(self.queue, MemoryQueue):
                check(self.queue)

        def teardown(self):
            self.queue.close()

    return Machine


@EVERY_KIND
@pytest.mark.nightly
def test_random_operations_agree_with_a_list_scanned_linearly(make, clock):
    often = settings(max_examples=100, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(
        machine_of(make, clock), settings=settings(often, suppress_health_check=list(HealthCheck))
    )


def _kinds_and_masks():
    """All masks in memory; in databases by day those of at most two fields, and the one of all."""
    for mask in range(64):
        day = [] if mask.bit_count() <= 2 or mask == 63 else [pytest.mark.nightly]
        yield "memory", mask
        yield pytest.param("sqlite", mask, marks=[pytest.mark.slow, *day])
        yield pytest.param("postgresql", mask, marks=[*POSTGRES, *day])


@pytest.mark.parametrize(("make", "mask"), list(_kinds_and_masks()), indirect=["make"])
def test_every_mask_agrees_with_a_list_scanned_linearly(make, clock, mask):
    """Many messages with few ids, so that lists are long, and indexes of several fields are made."""
    chance = random.Random(mask)
    pair = Pair(make, clock)

    def message():
        properties = {"weight": chance.randint(1, 3), "color": chance.choice(["red", "blue"])}
        same = {"last_in_group": False, "expiry": -1, "body": b"", "properties": properties}
        return {**drawn(), **same, "priority": chance.choice([4, 4, 4, 0, 9])}

    def request():
        selector = chance.choice([None, None, *SELECTORS])
        same = {"match": mask, "token": chance.randrange(1_000), "logical_order": False}
        return {**drawn(), **same, "selector": selector}

    def drawn():
        return {name: chance.choice(values) for name, values in CHOICES.items()}

    many = 250 if NIGHTLY else 60
    for _ in range(many):
        pair.put(message())
    pair.unit = pair.queue.unit()
    for step in range(many):
        if step % 20 == 19:
            pair.end(commit=step % 40 == 39)
            pair.unit = pair.queue.unit()
        chance.choice([pair.browse, pair.get])(request())
        if step % 5 == 0:
            pair.get(request(), in_unit=True)
            pair.put(message(), in_unit=True)
            pair.put(message())
    if isinstance(pair.queue, MemoryQueue):
        check(pair.queue)


def properties_of(message):
    """What a generated message may be put with: its names and values, but for those of the descriptor."""
    wanted = {**message.properties, "JMSType": message.headers.get("JMSType")}
    correlation = message.headers.get("JMSCorrelationID")
    if isinstance(correlation, str):
        wanted["JMSCorrelationID"] = correlation
    not_put = {*FIELDS, "JMSXGroupSeq", "JMSXGroupID", "jms.Cid", "jms.Gid", "jms.Seq"}
    return {name: value for name, value in wanted.items() if name not in not_put}


@pytest.mark.slow
@given(
    chosen=st.lists(checked_selectors(), min_size=1, max_size=6),
    some=st.lists(generated_messages(), min_size=1, max_size=12),
    priorities=st.randoms(use_true_random=False),
)
@settings(max_examples=80 if NIGHTLY else 20, deadline=None)
def test_any_selector_finds_what_the_reference_selects_in_the_order_of_the_queue(chosen, some, priorities):
    """By walking, and by the indexes that are made at once where a lookup may look at nothing in vain."""
    for patience in (memory.MAX_SCANNED_BEFORE_INDEX, 0):
        queue = MemoryQueue()
        with mock.patch.object(memory, "MAX_SCANNED_BEFORE_INDEX", patience):
            for message in some:
                queue.put(properties=properties_of(message), priority=priorities.randrange(10))
            cursor, every = queue.cursor(), []
            while len(every) < len(some):
                every.append(cursor.next())
            for selector in [*chosen, *chosen]:
                wanted = [one.queue_key for one in every if selector.matches(one.selector_message)]
                cursor, found = queue.cursor(), []
                while len(found) <= len(some):
                    try:
                        found.append(cursor.next(selector=selector).queue_key)
                    except sr.MQError as error:
                        assert error.reason == 2033
                        break
                assert found == wanted
            check(queue)
