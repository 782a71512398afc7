"""A dry run says what the reference evaluator says of each message before and after a change."""

from hypothesis import given, settings
from hypothesis import strategies as st

from selectroute.index.index import Index
from selectroute.service.subscriptions.samples import dry_run
from tests.support.strategies import checked_selectors, messages


def of_one(selector):
    index = Index()
    if selector is not None:
        index.add("it", selector)
    return index


@settings(deadline=None, max_examples=25)
@given(st.none() | checked_selectors(), st.none() | checked_selectors(), st.lists(messages(), max_size=20))
def test_it_agrees_with_the_reference(before, after, given_messages):
    found = dry_run(of_one(before), of_one(after), given_messages)
    was, now = (
        [selector is not None and selector.matches(message) for message in given_messages]
        for selector in (before, after)
    )
    of = list(enumerate(zip(was, now, strict=True)))
    assert found.gained.tolist() == [number for number, one in of if one == (False, True)]
    assert found.lost.tolist() == [number for number, one in of if one == (True, False)]
    assert found.unchanged.tolist() == [number for number, one in of if one == (True, True)]
