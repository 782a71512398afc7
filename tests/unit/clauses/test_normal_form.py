"""Clauses: what expands, what stays whole, and that neither time nor size explodes."""

from __future__ import annotations

import time
from itertools import product

import pytest

from selectroute.clauses.normal_form import MAX_CLAUSES, MAX_EXPANDED, MAX_LITERALS, TOO_LARGE, clauses_of
from selectroute.clauses.predicate import ClauseLiteral, ExpressionTest, OneOf, Test
from selectroute.selector import Long, Message, Selector
from selectroute.selector.dialect import IBM_JMS, JMS
from selectroute.selector.limits import UNLIMITED


def clauses(text, rules=JMS):
    return clauses_of(Selector(text, rules.name, limits=UNLIMITED).expression, rules)


def reasons(found):
    """Why parts of these clauses stay whole."""
    predicates = [literal.predicate for clause in found for literal in clause.literals]
    return {predicate.reason for predicate in predicates if isinstance(predicate, ExpressionTest)}


def test_no_selector_is_one_clause_that_always_holds():
    assert [clause.literals for clause in clauses("")] == [()]


def test_operators_are_never_flipped():
    [clause] = clauses("NOT (a < 5)")
    assert clause.literals == (ClauseLiteral(Test("a", "<", Long(5), JMS), False),)


def test_between_is_two_comparisons():
    [clause] = clauses("a BETWEEN 1 AND 5")
    assert clause.literals == (
        ClauseLiteral(Test("a", ">=", Long(1), JMS), True),
        ClauseLiteral(Test("a", "<=", Long(5), JMS), True),
    )
    assert len(clauses("a NOT BETWEEN 1 AND 5")) == 2


def test_a_literal_on_the_left_is_mirrored():
    [clause] = clauses("5 < a")
    assert clause.literals == (ClauseLiteral(Test("a", ">", Long(5), JMS), True),)


def test_equalities_of_one_property_become_one_in_list():
    [clause] = clauses("c = 'b' OR c IN ('a', 'c') OR c = 'b'")
    assert clause.literals == (ClauseLiteral(OneOf("c", ("a", "b", "c"), False, JMS), True),)


def test_a_selector_that_is_never_true_has_no_clause():
    for text in ("FALSE", "1 = 2 AND a = 1", "1 / 0 = 1", "NOT (1 / 0 = 1)"):
        assert clauses(text) == ()


def test_a_constant_that_makes_the_whole_selector_false_leaves_no_clause():
    assert clauses("a = 1 OR 1 / 0 + 1 = 2", IBM_JMS) == ()
    assert clauses("a = 1 AND NOT (1 / 0 + 1 = 2)", IBM_JMS) == ()
    assert len(clauses("a = 1 OR 1 / 0 + 1 = 2", JMS)) == 1


def test_a_comparison_of_conditions_splits_on_the_first():
    assert len(clauses("(a > 1) = (b > 1)")) == 2
    assert len(clauses("(a > 1) = TRUE")) == 1
    assert len(clauses("(a > 1) <> b")) == 2


def test_one_or_of_a_thousand_branches_still_expands():
    branches = [f"p{number} = {number}" for number in range(1_000)]
    assert len(clauses(" OR ".join(branches))) == 1_000


def test_what_would_explode_stays_whole_beside_its_equalities():
    product = " AND ".join(f"(a{number} > 1 OR b{number} > 1)" for number in range(20))
    found = clauses(f"JMSType = 'car' AND {product}")
    assert len(found) <= MAX_CLAUSES
    assert sum(len(clause.literals) for clause in found) <= MAX_LITERALS
    assert all(ClauseLiteral(Test("JMSType", "=", "car", JMS), True) in clause.literals for clause in found)
    assert reasons(found) == {TOO_LARGE}


SIZES = {"a": 2_000, "b": 60, "c": 60}
FACTORS = [" OR ".join(f"{name} > {n}" for n in range(size)) for name, size in SIZES.items()]
BOUNDED = {
    "product": " AND ".join(f"(a{number} > 1 OR b{number} > 1)" for number in range(10)),
    "sum": " OR ".join(f"({' AND '.join(f'a{part} > {n}' for part in range(10))})" for n in range(1_000)),
    "negated sum": "NOT (" + " OR ".join(f"(a{n} > 1 AND b{n} > 1)" for n in range(10)) + ")",
    "one factor too large, and the product of the others": " AND ".join(f"({factor})" for factor in FACTORS),
}
DEEP = {
    "nots": "NOT " * 50_000 + "a",
    "parentheses": "(" * 50_000 + "a = 1" + ")" * 50_000,
    "wide or": " OR ".join(f"a > {number}" for number in range(5_000)),
    "wide and": " AND ".join(f"a <> {number}" for number in range(9_000)),
    "comparisons of comparisons": "(" * 2_000 + "(a > 1)" + " = b)" * 2_000 + " = c",
}


@pytest.mark.parametrize("name", [*BOUNDED, *(pytest.param(name, marks=pytest.mark.slow) for name in DEEP)])
def test_clauses_and_their_literals_are_bounded(name):
    """Of the first there would be 1,024 clauses of ten literals each, or nearly as many."""
    found = clauses({**BOUNDED, **DEEP}[name])
    assert 0 < len(found) <= MAX_CLAUSES
    assert sum(len(clause.literals) for clause in found) <= MAX_LITERALS


def test_a_short_selector_does_not_become_thousands_of_literals():
    """Nine pairs of 340 characters were 512 clauses of 15 literals, all of which an index has to build."""
    pairs = " AND ".join(f"(a{number} = 1 OR b{number} = 2)" for number in range(9))
    rest = " AND ".join(f"c{number} = 1" for number in range(6))
    found = clauses(f"{pairs} AND {rest}")
    assert sum(len(clause.literals) for clause in found) <= MAX_EXPANDED
    assert reasons(found) == {TOO_LARGE}
    assert all(ClauseLiteral(Test("c0", "=", Long(1), JMS), True) in clause.literals for clause in found)


def test_what_is_nearly_as_long_as_it_is_written_is_expanded():
    """An OR of 250 different ANDs is found by its equalities, also where each has an OR in it."""
    text = " OR ".join(f"(a{n} = 1 AND b{n} = 2 AND (c = 1 OR d = 2))" for n in range(250))
    found = clauses(text)
    assert len(found) == 500
    assert not reasons(found[:1])


def test_nesting_is_normalised_in_no_more_time_than_its_length():
    """3.1 KB took half a second, in each of which the whole service waited."""
    text = "".join(f"(p{k}a=1 OR (p{k}b=2 AND " for k in range(115)) + "c=1" + "))" * 115
    expression = Selector(text).expression
    started = time.process_time()
    clauses_of(expression, JMS)
    assert time.process_time() - started < 0.2  # 8 ms on the machine where it was 450


TOO_LARGE_SHAPES = (
    "(a = 1) = (b = 1 OR c > 1 OR d = 1)",
    "(a = 1) <> (b = 1 OR c > 1 OR d = 1)",
    "(a = 1 OR b > 1) = (c = 1 AND d = 1 AND NOT a > 2)",
    "(a = 1 OR b > 1 OR c = 2) = d",
    "(a = 1 AND b > 1) = (c = 1 AND d = 1)",
    "(a = 1 AND b > 1) <> (c = 1 AND d = 1)",
    "(a = 1 OR b > 1) <> (c = 1 OR d = 1)",
    "NOT ((a = 1 OR b = 1) AND (c = 1 OR d > 1))",
    "(a = 1 OR b > 1) AND (c = 1 OR d > 1) AND NOT (a > 1 AND d = 2)",
    "a BETWEEN 1 AND 1 OR NOT (b BETWEEN 1 AND 1 OR c NOT BETWEEN 1 AND 1) AND d = 1",
    "(a = 'x' OR a = 'y' OR b IN ('x', 'y')) AND NOT (c = 'x' OR d = 'x') OR b IS NULL AND d > 1",
)


@pytest.mark.parametrize("rules", [JMS, IBM_JMS], ids=lambda rules: rules.name)
@pytest.mark.parametrize("bound", [1, 2, 3, 4, 8])
def test_a_part_that_stays_whole_keeps_its_meaning(bound, rules, monkeypatch):
    monkeypatch.setattr("selectroute.clauses.normal_form.MAX_CLAUSES", bound)
    messages = [
        Message(properties=dict(zip("abcd", values, strict=True)))
        for values in product((None, 1, 2, "x"), (None, 1, 2, "x"), (1, 2, "x"), (None, 1, True, "x"))
    ]
    for text in TOO_LARGE_SHAPES:
        selector, found = Selector(text, rules.name), clauses(text, rules)
        assert len(found) <= bound
        for message in messages:
            held = any(clause.holds(message.value) for clause in found)
            assert held is selector.matches(message), (text, message)


@pytest.mark.parametrize("never", ["FALSE", "1 = 2", "'a' = 'b'", "NOT TRUE", "(FALSE OR 1 > 2)"])
def test_a_part_that_is_never_true_is_not_multiplied_out(never):
    """Forty factors of two alternatives would be 2^40 clauses."""
    factors = " AND ".join(["(a > 1 OR b > 1)"] * 40)
    assert clauses(f"{factors} AND {never}") == ()
    assert clauses(f"{never} AND {factors}") == ()
    assert len(clauses(f"a = 1 OR ({factors} AND {never})")) == 1
