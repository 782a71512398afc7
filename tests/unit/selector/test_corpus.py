"""The reference evaluator against the corpus: the meaning, against what the specification says it is."""

import re

import pytest

from selectroute.selector import DIALECTS, InvalidSelectorError, Message, Selector
from selectroute.selector.limits import UNLIMITED
from tests.support.corpus_rows import FOLDER, VERDICTS, Row, rows


def verdict(row: Row, dialect: str) -> str:
    try:
        selector = Selector(row.selector, dialect)
    except InvalidSelectorError:
        return "invalid"
    return selector.evaluate(Message.from_json(row.message)).value


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("*.toml")))
def test_reference_evaluator_gives_the_verdict_of_every_row(file):
    wrong = [
        f"{row.selector!r} with {row.message} is {seen} in {dialect}, not {wanted}; {row}"
        for row in rows()
        if row.file == file
        for dialect, wanted in row.verdict.items()
        if (seen := verdict(row, dialect)) != wanted
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_invalid_rows_underline_what_is_wrong(dialect):
    wrong = []
    for row in rows():
        if row.verdict[dialect] != "invalid":
            continue
        with pytest.raises(InvalidSelectorError) as caught:
            Selector(row.selector, dialect)
        error = caught.value
        wanted = row.kind.get(dialect, error.kind), row.underlined.get(dialect, error.underlined)
        if (error.kind, error.underlined) != wanted:
            wrong.append(f"{error}\nwanted {wanted[0]} at {wanted[1]!r}; {row}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_valid_rows_print_and_parse_back(dialect):
    for row in rows():
        if row.verdict[dialect] != "invalid" and row.selector:
            selector = Selector(row.selector, dialect)
            again = Selector(selector.canonical, dialect, limits=UNLIMITED)
            assert again.expression == selector.expression, row
            assert again.canonical == selector.canonical, row


def test_rows_are_complete_and_cite_their_source():
    assert len(rows()) > 1_200
    for row in rows():
        assert set(row.verdict) == set(DIALECTS) and set(row.verdict.values()) <= set(VERDICTS), row
        assert re.fullmatch("00[0-4]", row.seed) and row.section and row.reason, row
        invalid = {dialect for dialect, verdict in row.verdict.items() if verdict == "invalid"}
        assert set(row.kind) <= invalid and set(row.underlined) <= invalid, row
