"""Index and kernel against the corpus: the verdicts that the reference evaluator is held to."""

from __future__ import annotations

import pytest

import selectroute as sr
from selectroute.match import from_messages
from tests.corpus_rows import rows

VALID = [row for row in rows() if row.verdict.get("jms") in ("true", "false", "unknown")]


def test_the_corpus_has_rows():
    assert len(VALID) > 200


def test_index_selects_exactly_the_true_rows():
    wrong = []
    for row in VALID:
        index = sr.Index()
        index.add("row", row.selector)
        if index.match(sr.Message.from_json(dict(row.message))) != (
            ["row"] if row.verdict["jms"] == "true" else []
        ):
            wrong.append(str(row))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("negated", [False, True])
def test_kernel_selects_exactly_the_true_rows(negated):
    """All rows in one snapshot; negated, exactly the false rows: that tells FALSE from UNKNOWN."""
    index = sr.Index()
    for number, row in enumerate(VALID):
        # The empty selector is no expression that NOT could stand before.
        index.add(str(number), f"NOT ({row.selector})" if negated and row.selector else row.selector)
    snapshot = index.freeze()
    batch = from_messages([sr.Message.from_json(dict(row.message)) for row in VALID], snapshot.reads)
    ids = snapshot.ids.to_pylist()
    wanted = "false" if negated else "true"
    wrong = [
        str(row)
        for number, (row, found) in enumerate(zip(VALID, snapshot.match(batch), strict=True))
        if row.selector and (str(number) in {ids[i] for i in found}) is not (row.verdict["jms"] == wanted)
    ]
    assert not wrong, "\n".join(wrong)
