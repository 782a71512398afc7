"""The reference evaluator against the corpus: the meaning, against what the specification says it is."""

import re

import pytest

from selectroute.selector import DIALECTS, InvalidSelectorError, Message, Selector
from tests.corpus_rows import FOLDER, VERDICTS, Row, rows


def verdict(row: Row, dialect: str) -> str:
    try:
        selector = Selector(row.selector, dialect)
    except InvalidSelectorError:
        return "invalid"
    return selector.evaluate(Message.from_json(row.message)).value


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("*.toml")))
def test_reference_evaluator_gives_the_verdict_of_every_row(file):
    wrong = [
        f"{row.selector!r} with {row.message} is {seen}, not {wanted}; {row}"
        for row in rows()
        if row.file == file
        for dialect, wanted in row.verdict.items()
        if (seen := verdict(row, dialect)) != wanted
    ]
    assert not wrong, "\n".join(wrong)


def test_invalid_rows_underline_what_is_wrong():
    wrong = []
    for row in rows():
        if row.verdict.get("jms") != "invalid":
            continue
        try:
            Selector(row.selector)
        except InvalidSelectorError as error:
            if (error.kind, error.underlined) == (row.kind, row.underlined):
                continue
            wrong.append(f"{error}\nwanted {row.kind} at {row.underlined!r}; {row}")
        else:
            wrong.append(f"{row.selector!r} is accepted; {row}")
    assert not wrong, "\n".join(wrong)


def test_valid_rows_print_and_parse_back():
    for row in rows():
        if row.verdict.get("jms") not in (None, "invalid") and row.selector:
            selector = Selector(row.selector)
            assert Selector(selector.canonical, max_length=10**6).expression == selector.expression, row
            assert Selector(selector.canonical, max_length=10**6).canonical == selector.canonical, row


def test_rows_are_complete_and_cite_their_source():
    assert len(rows()) > 400
    for row in rows():
        assert (
            row.verdict and set(row.verdict) <= set(DIALECTS) and set(row.verdict.values()) <= set(VERDICTS)
        ), row
        assert re.fullmatch("00[0-4]", row.seed) and row.section and row.reason, row
        assert (
            ("invalid" in row.verdict.values()) == (row.kind is not None) == (row.underlined is not None)
        ), row
