"""``selectroute selector``: what it prints, where, and with which exit code."""

import io
import json
import sys

import pytest

from selectroute.cli import inputs, main
from selectroute.selector import DIALECTS, Message

HEAVY = {"headers": {"JMSMessageID": "m1"}, "properties": {"weight": 3000}, "topic": "cars/eu"}
TEXT = {"properties": {"weight": "3000"}}
LIGHT = {"properties": {"weight": 5, "name": "Zoë"}}
FIRST = "line 1  m1  on cars/eu\n1 of 3 messages\n"
LINES = "".join(f"{json.dumps(message, ensure_ascii=False)}\n" for message in (HEAVY, TEXT, LIGHT))


# ---- check


def test_a_valid_selector_is_described(run):
    code, out, err = run("selector", "check", "JMSPriority > 9 OR color = 'red'")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "canonical  JMSPriority > 9 OR color = 'red'",
        "reads      JMSPriority, color",
        "found by   color",
        "warning    impossible-comparison: `JMSPriority` is an int from 0 to 9, which never makes this true",
        "           JMSPriority > 9 OR color = 'red'",
        "           ^^^^^^^^^^^^^^^",
    ]
    code, out, _ = run("selector", "check", "a = 1", "-o", "json")
    assert code == 0 and json.loads(out)["valid"] is True and json.loads(out)["canonical"] == "a = 1"


def test_an_invalid_selector_is_underlined_and_exits_with_5(run):
    code, out, err = run("selector", "check", "a == 1")
    assert (code, err) == (5, "")
    assert out.splitlines()[1:] == ["  a == 1", "    ^^", "hint: write = to compare", "did you mean: a = 1"]
    code, out, _ = run("selector", "check", "a == 1", "-o", "ndjson")
    assert code == 5 and json.loads(out)["error"]["suggestion"] == "a = 1"


def test_many_selectors_are_checked_line_by_line(run, tmp_path):
    lines = "a = 1\r\n\n  \nb = \n"
    code, out, _ = run("selector", "check", "-", stdin=lines)
    assert code == 5
    assert out.startswith("line 1: a = 1\n  canonical  a = 1\n") and "line 4: b = \n  unexpected-end" in out
    (tmp_path / "selectors.txt").write_text(lines, encoding="utf-8")
    code, out, _ = run("selector", "check", "--file", tmp_path / "selectors.txt", "-o", "ndjson")
    assert code == 5
    rows = [(row["line"], row["valid"]) for row in map(json.loads, out.splitlines())]
    assert rows == [(1, True), (4, False)]
    code, out, _ = run("selector", "check", "-", "-o", "json", stdin="a\nb\n")
    assert code == 0 and [row["selector"] for row in json.loads(out)] == ["a", "b"]
    assert run("selector", "check", "-", "-o", "json", stdin="")[:2] == (0, "[]\n")
    assert run("selector", "check", "--file", tmp_path / "none")[0] == 3


def test_the_dialect_is_an_option_or_the_environment(run, monkeypatch):
    assert run("selector", "check", 'a = "0x00"')[0] == 5
    assert run("selector", "check", 'a = "0x00"', "--dialect", "ibm-mq")[0] == 0
    monkeypatch.setenv("SELECTROUTE_DIALECT", "ibm-mq")
    assert run("selector", "check", 'a = "0x00"')[0] == 0
    assert run("selector", "check", 'a = "0x00"', "--dialect", "mqe")[0] == 5


def test_wrong_usage_exits_with_2(run):
    code, _, err = run("selector", "check", "a", "--dialect", "ibm")
    assert code == 2 and "'ibm'" in err
    assert run("selector", "check")[0] == 2 and run("selector", "check", "a", "--file", "x")[0] == 2
    assert run("selector", "check", "-a > 1")[0] == 2
    assert run("selector", "check", "--", "-a > 1")[0] == 0
    assert run("selector", "explain", "a")[0] == 2


def test_what_a_terminal_cannot_show_is_no_error(monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "ascii"))
    monkeypatch.setattr(sys, "argv", ["selectroute", "selector", "check", "é = '\x1b[31m'"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 0
    assert b"\\xe9 = ' [31m'" in shown.getvalue() and b"\x1b" not in shown.getvalue()


# ---- explain


def test_explain_shows_the_tree_of_one_message(run):
    code, out, err = run("selector", "explain", "weight > 2500", json.dumps(TEXT))
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "FALSE   weight > 2500  — `weight` is the string '3000', compared with a number: FALSE in jms",
        "          weight is string '3000'",
    ]
    code, out, _ = run("selector", "explain", "weight > 2500", json.dumps(TEXT), "-o", "json")
    found = json.loads(out)
    assert found["matched"] is False and found["explanation"]["truth"] == "false" and "line" not in found
    assert found["sentences"] == ["`weight` is the string '3000', compared with a number: FALSE in jms"]


def test_explain_shows_a_tree_for_each_message_of_a_file(run):
    _, out, _ = run("selector", "explain", "weight > 2500", "-", stdin=LINES)
    verdicts = [line for line in out.splitlines() if line.startswith("line")]
    assert verdicts == ["line 1 matches", "line 2 does not match", "line 3 does not match"]
    _, out, _ = run("selector", "explain", "weight > 2500", "-", "-o", "ndjson", stdin=LINES)
    assert [json.loads(line)["matched"] for line in out.splitlines()] == [True, False, False]


def test_a_deep_explanation_is_json_all_the_same(run):
    deep = "a" + " + 1" * 2_000 + " > 0"
    code, out, _ = run("selector", "explain", deep, '{"properties": {"a": 1}}', "-o", "json")
    assert code == 0 and out.count('"children"') == 2_001


# ---- match


def test_match_names_the_lines_or_prints_the_messages(run, tmp_path):
    path = tmp_path / "messages.jsonl"
    path.write_text(LINES, encoding="utf-8")
    assert run("selector", "match", "weight > 2500", path)[:2] == (0, FIRST)
    code, out, _ = run("selector", "match", "weight > 2", path, "-o", "ndjson")
    assert code == 0 and out.isascii()
    assert list(map(json.loads, out.splitlines())) == [HEAVY, LIGHT]
    code, out, _ = run("selector", "match", "weight > 2", path, "-o", "json")
    assert [Message.from_json(row).value("weight").value for row in json.loads(out)] == [3000, 5]


def test_match_exits_with_1_when_there_is_none(run):
    assert run("selector", "match", "weight > 9999", "-", stdin=LINES)[:2] == (1, "0 of 3 messages\n")
    assert run("selector", "match", "weight > 9999", "-", "-o", "json", stdin=LINES)[:2] == (1, "[]\n")
    one = run("selector", "match", "weight = 5", json.dumps(LIGHT))
    assert one[:2] == (0, "the message\n1 of 1 message\n")
    assert run("selector", "match", "", "-", stdin="")[0] == 1


def test_an_invalid_selector_ends_the_command_before_anything_is_read(run):
    for verb in ("explain", "match"):
        code, out, err = run("selector", verb, "a ==", "-", stdin="nonsense")
        assert (code, out) == (5, "") and "unknown-operator" in err


# ---- messages


def test_a_message_may_go_over_several_lines(run):
    pretty = "\n" + json.dumps(HEAVY, indent=2)
    assert run("selector", "match", "weight > 2500", "-", stdin=pretty)[0] == 0
    code, out, _ = run("selector", "match", "weight > 2500", "-", "-o", "ndjson", stdin=pretty)
    assert code == 0 and json.loads(out) == HEAVY and out.count("\n") == 1


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("foo\n", "<stdin>:1: not valid JSON: Expecting value at column 1"),
        (LINES + "[]\n", "<stdin>:4: message: expected an object, not list"),
        ('{"properties": {"a": {"type": "int", "value": 2147483648}}}\n',
         "<stdin>:1: properties.a: 2147483648 is not a valid int"),
        ('{\n"properties":\n}', "<stdin>: not valid JSON: Expecting value at line 3, column 1"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_one_sentence_that_names_the_line(run, lines, sentence):
    code, _, err = run("selector", "match", "weight > 2500", "-", stdin=lines)
    assert code == 1 and sentence in err and "Traceback" not in err and err.count("\n") == 1


def test_an_inline_message_that_is_none_is_one_sentence(run):
    code, _, err = run("selector", "match", "a", '{"headers": {"JMSFoo": 1}}')
    said = "selectroute: the message: headers.JMSFoo: there is no such header; the"
    assert code == 1 and err.startswith(said)
    _, _, err = run("selector", "match", "a", '{"propertys": {"a": 1}}')
    said = "the message: propertys: a message has no field `propertys`: did you mean `properties`?\n"
    assert err.endswith(said)
    assert run("selector", "match", "a", "{")[0] == 1


def test_bad_lines_can_be_skipped_and_are_reported(run):
    for lines, bad in (("foo\n" + LINES + "{\n", 2), ("{\n" + LINES, 1)):
        code, out, err = run("selector", "match", "weight > 2500", "-", "--skip-bad", stdin=lines)
        assert (code, out) == (0, FIRST.replace("line 1", "line 2"))
        assert err.count("not valid JSON") == bad


def test_a_line_that_is_too_long_is_never_held(run, monkeypatch):
    monkeypatch.setattr(inputs, "MAX_LINE", 100)
    code, _, err = run("selector", "match", "a", "-", stdin=LINES + " " * 101)
    assert code == 1 and "<stdin>:4: the line has more than 100 characters" in err
    assert run("selector", "check", "-", stdin="a = 1 AND " * 20)[0] == 1
    assert run("selector", "match", "a", "-", stdin="{" + "\n" * 200)[0] == 1


# ---- dialects


def test_the_differences_between_the_dialects_are_shown(run):
    code, out, _ = run("selector", "dialects", "-o", "json")
    table = {row["field"]: row["cells"] for row in json.loads(out)}
    assert code == 0 and all(list(cells) == list(DIALECTS) for cells in table.values())
    assert table["seed"]["jms"] == "JMS specification, chapter 3.8"
    assert table["unlike_types"]["ibm-mq"] == "**the whole selector is false**"
    code, out, _ = run("selector", "dialects")
    assert code == 0 and "unlike types" in out and "`" not in out and "**" not in out


def test_two_dialects_are_compared_by_what_differs(run):
    code, out, _ = run("selector", "dialects", "--only", "jms,mqe", "--differences", "-o", "json")
    table = {row["field"]: row["cells"] for row in json.loads(out)}
    assert code == 0 and all(list(cells) == ["jms", "mqe"] for cells in table.values())
    assert "dotted_names" not in table and "lacks" in table
    code, out, _ = run("selector", "dialects", "--only", "mqe")
    assert code == 0 and ", *, +" in out, "the sign of multiplication is no Markdown"
    code, _, err = run("selector", "dialects", "--only", "ibm")
    assert code == 2 and "ibm-mq" in err


def test_a_file_name_in_place_of_a_selector_is_told_of_the_option(run, tmp_path):
    code, _, err = run("selector", "check", "nosuch.txt")
    assert code == 5 and err == "selectroute: to check the selectors of a file: --file nosuch.txt\n"
    (tmp_path / "selectors").write_text("a = 1\n")
    assert "--file" in run("selector", "check", tmp_path / "selectors")[2]
    assert run("selector", "check", "a = = 1")[2] == ""
