"""The tree that a text gives: its shape, its spans, and that no depth or length is too much."""

import copy

import pytest

from selectroute.selector import JMS, Double, Float, InvalidSelectorError, Long, parse, postorder, to_text
from selectroute.selector.syntax.ast import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Unary,
)

A, B, C = Identifier("a"), Identifier("b"), Identifier("c")
DEEP = 20_000


def tree(text):
    return parse(text, JMS)


def span_of(text, node):
    return text[node.span.start : node.span.end]


def test_a_chain_is_one_node_and_a_parenthesised_chain_stays_nested():
    assert tree("a AND b AND c") == And((A, B, C))
    assert tree("(a AND b) AND c") == And((And((A, B)), C))
    assert tree("a AND (b AND c)") == And((A, And((B, C))))
    assert tree("a OR b AND c OR a") == Or((A, And((B, C)), A))


def test_not_binds_looser_than_comparison_and_tighter_than_and():
    one = Literal(Long(1))
    assert tree("NOT a = 1 AND b") == And((Not(Comparison("=", A, one)), B))


def test_arithmetic_is_left_associative():
    assert tree("a - b - c = a") == Comparison("=", Arithmetic("-", Arithmetic("-", A, B), C), A)
    assert tree("a - b * c = a") == Comparison("=", Arithmetic("-", A, Arithmetic("*", B, C)), A)


SIGNED = {
    "-5": Literal(Long(-5)), "+ 5": Literal(Long(5)), "-5.5": Literal(Double(-5.5)),
    "-5F": Literal(Float(-5.0)), "-0.0": Literal(Double(-0.0)), "- -5": Unary("-", Literal(Long(-5))),
    "-(5)": Unary("-", Literal(Long(5))), "-(-5)": Unary("-", Literal(Long(-5))), "-a": Unary("-", A),
    "-9223372036854775808": Literal(Long(-(2**63))),
}  # fmt: skip


@pytest.mark.parametrize("text", SIGNED)
def test_a_sign_directly_before_a_number_belongs_to_the_literal(text):
    left = tree(f"{text} < b").left
    assert left == SIGNED[text]
    assert span_of(f"{text} < b", left) == text


def test_every_predicate_has_its_node():
    one, two = Literal(Long(1)), Literal(Long(2))
    assert tree("a BETWEEN 1 AND 2") == Between(A, one, two)
    assert tree("a NOT BETWEEN 1 AND 2") == Between(A, one, two, negated=True)
    assert tree("a IN ('x', 'y', 'x')") == In(A, ("x", "y", "x"))
    assert tree("a NOT IN ('x')") == In(A, ("x",), negated=True)
    assert tree("a LIKE 'x%'") == Like(A, "x%")
    assert tree("a NOT LIKE 'x!%' ESCAPE '!'") == Like(A, "x!%", "!", negated=True)
    assert tree("a IS NULL") == IsNull(A)
    assert tree("a IS NOT NULL") == IsNull(A, negated=True)
    assert tree("a") == A
    assert tree("TRUE") == Literal(True)


def test_spans_cover_each_part_with_its_parentheses():
    text = "NOT (a + 1 > b) AND c NOT IN ( 'x' ) OR ((a))  IS NOT NULL OR b LIKE 'x' ESCAPE '!'"
    parts = {span_of(text, node) for node in postorder(tree(text))}
    assert parts == {
        "a", "1", "a + 1", "b", "(a + 1 > b)", "NOT (a + 1 > b)", "c", "c NOT IN ( 'x' )",
        "NOT (a + 1 > b) AND c NOT IN ( 'x' )", "((a))", "((a))  IS NOT NULL", "b LIKE 'x' ESCAPE '!'", text,
    }  # fmt: skip


def test_spans_count_code_points():
    text = "'😀' = é AND b"
    assert span_of(text, tree(text).operands[0]) == "'😀' = é"


DEEP_TEXTS = {
    "parentheses": "(" * DEEP + "a" + ")" * DEEP,
    "nots": "NOT " * DEEP + "a",
    "minuses": "-" * DEEP + "a = 1",
    "nested ands": "a AND (" * DEEP + "b" + ")" * DEEP,
    "nested sums": "a + (" * 5_000 + "b" + ")" * 5_000 + " = 1",
    "nested conditions": "(" * 5_000 + "a" + " = TRUE)" * 5_000,
    "a chain of ors": "a OR " * 5_000 + "b",
    "a chain of sums": "a + " * 5_000 + "b = 1",
    "a long list": "a IN (" + "'x', " * DEEP + "'y')",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEP_TEXTS)
def test_depth_and_length_need_no_recursion(name):
    text = DEEP_TEXTS[name]
    expression, again = tree(text), tree(text)
    assert expression == again
    assert hash(expression) == hash(again)
    assert tree(to_text(expression)) == expression
    assert len(repr(expression)) >= len(repr(A))
    assert copy.copy(expression) == expression and copy.deepcopy(expression) == expression
    del expression, again  # freeing does not recurse either


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["(" * DEEP, "NOT " * DEEP, "- " * DEEP, "a AND (" * DEEP, "a = 1 = (" * DEEP]
)
def test_unfinished_depth_is_an_error_like_any_other(text):
    with pytest.raises(InvalidSelectorError):
        tree(text)


def test_trees_differ_in_every_own_field():
    different = [
        A, B, Literal("a"), Literal(True), Literal(Long(1)), Literal(Double(1.0)), Literal(Float(1.0)),
        Literal(Double(0.0)), Literal(Double(-0.0)), Unary("-", A), Unary("+", A), Arithmetic("-", A, B),
        Arithmetic("-", B, A), Comparison("=", A, B), Comparison("<>", A, B), Between(A, B, C),
        Between(A, B, C, True), In(A, ("x",)), In(A, ("x", "x")), In(A, ("x",), True), Like(A, "x"),
        Like(A, "x", "!"), Like(A, "x", None, True), IsNull(A), IsNull(A, True), Not(A), And((A, B)),
        Or((A, B)),
        And((A, B, C)), And((And((A, B)), C)), And((A, And((B, C)))),
    ]  # fmt: skip
    assert len(set(different)) == len(different)
    for i, one in enumerate(different):
        assert [one == other for other in different].count(True) == 1, i
    assert A != "a"


def test_nodes_are_immutable_and_show_themselves():
    expression = tree("a = 1 AND NOT b IN ('x')")
    with pytest.raises(AttributeError):
        expression.operands = ()
    assert repr(expression) == (
        "And(Comparison('=', Identifier('a'), Literal(Long(1))), Not(In(('x',), False, Identifier('b'))))"
    )
