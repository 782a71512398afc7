"""M is what its definition says: shares of forms, attributes a message carries, twins."""

from collections import Counter

import pytest

from bench.workloads import mixed


def test_a_message_carries_twenty_attributes_of_sixty():
    batch = mixed.messages(200)
    assert batch.num_columns == mixed.ATTRIBUTES
    assert {sum(value is not None for value in row.values()) for row in batch.to_pylist()} == {mixed.CARRIED}


def test_tuples_are_about_fifty_and_of_one_kind_of_message_each():
    assert len({one.equal for one in mixed.tuples()}) == 48
    for number, one in enumerate(mixed.tuples()):
        own = set(mixed.kinds()[number % mixed.KINDS])
        assert own >= {*one.equal, *one.ranges, one.other}
        assert one.absent not in own and one.other not in one.equal


def test_shares_of_forms_add_up():
    assert sum(share for _, share in mixed.FORMS) == 100


def test_forms_come_in_their_shares():
    texts = list(mixed.selectors(20_000))
    counted = Counter(form for text in texts for form in _marks(text))
    for form, share in (
        ("IN", 8),
        ("OR", 5),
        ("NULL", 3),
        ("BETWEEN", 3),
        ("NOT", 2),
        ("sum", 1),
        ("LIKE", 7),
    ):
        assert counted[form] / len(texts) == pytest.approx(share / 100, rel=0.15), form


def test_two_of_a_hundred_are_twins_of_an_earlier_rule():
    made = list(mixed.conditions(20_000))
    twins = len(made) - len(set(map(id, made)))
    assert twins / len(made) == pytest.approx(0.02, rel=0.1)


def test_first_rules_are_as_defined():
    assert list(mixed.selectors(4)) == [
        "p23 = 'gold-0452' AND p32 = 'APAC-0049' AND p0 IS NULL",
        "p42 = 'DE-0134'",
        "p0 = 'EMEA-0000' AND p30 = 'APAC-0009' AND p44 = 'gold-1052' AND p55 >= 9198",
        "p40 = 'EMEA-0000' AND p30 = 'north-0002'",
    ]


def _marks(text):
    words = text.split()
    yield from {mark for mark in ("IN", "OR", "NULL", "BETWEEN", "LIKE") if mark in words}
    if "NOT (" in text:
        yield "NOT"
    if "*" in words:
        yield "sum"
