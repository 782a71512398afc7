"""Index and kernel against the corpus: the verdicts that the reference evaluator is held to."""

import pytest

import selectroute as sr
from selectroute.index.invariants import verify_snapshot
from selectroute.match.columns.from_messages import from_messages
from selectroute.selector import DIALECTS, dialect
from tests.support.corpus_rows import rows
from tests.support.index_invariants import verify_index

CASES = [
    (name, row) for row in rows() for name in DIALECTS if row.verdict[name] in ("true", "false", "unknown")
]


def test_the_corpus_has_rows():
    assert len(CASES) > 4_000


def test_index_selects_exactly_the_true_rows():
    wrong = []
    for name, row in CASES:
        index = sr.Index()
        index.add("row", sr.Selector(row.selector, name))
        matched = index.match(sr.Message.from_json(dict(row.message)))
        if matched != (["row"] if row.verdict[name] == "true" else []):
            wrong.append(f"{name}: {row.selector!r} with {row.message}; {row}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", DIALECTS)
def test_kernel_selects_exactly_the_true_rows(name):
    check_kernel([row for one, row in CASES if one == name], name)


@pytest.mark.parametrize("name", [name for name in DIALECTS if "NOT" not in dialect(name).lacks])
def test_kernel_selects_exactly_the_false_rows_when_negated(name):
    """That tells FALSE from UNKNOWN."""
    # The empty selector is no expression that NOT could stand before, and what it stands before is not alone.
    alone = {row.file for row in rows() if row.file == "ids.toml"} if dialect(name).id_fields else set()
    cases = [row for one, row in CASES if one == name and row.selector and row.file not in alone]
    check_kernel(cases, name, negated=True)


def check_kernel(cases, name, negated=False):
    """All rows in one snapshot, against all their messages in one batch."""
    index = sr.Index()
    for number, row in enumerate(cases):
        text = f"NOT ({row.selector})" if negated else row.selector
        index.add(str(number), sr.Selector(text, name))
    verify_index(index)
    snapshot = index.freeze()
    verify_snapshot(snapshot)
    messages = [sr.Message.from_json(dict(row.message)) for row in cases]
    batch = from_messages(messages, snapshot.reads)
    ids = snapshot.ids.to_pylist()
    wrong = []
    for number, (row, found) in enumerate(zip(cases, snapshot.match(batch), strict=True)):
        if negated:
            # What makes a selector false as a whole makes its negation false, too.
            selector = sr.Selector(f"NOT ({row.selector})", name)
            wanted = selector.evaluate(messages[number]) is sr.Truth.TRUE
        else:
            wanted = row.verdict[name] == "true"
        if (str(number) in {ids[i] for i in found}) is not wanted:
            wrong.append(f"{row.selector!r} with {row.message}; {row}")
    assert not wrong, "\n".join(wrong)
