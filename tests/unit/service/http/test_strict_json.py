"""Every way in refuses the same JSON with the same words and place, and takes a byte order mark."""

import json

import pytest

from selectroute.index.errors import InvalidLinesError
from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.framing import parsed
from selectroute.registry.authorization import EVERYTHING
from selectroute.registry.bulk.checking import checked_lines
from selectroute.registry.errors import ImportLineError
from selectroute.selector.limits import DEFAULT_LIMITS
from selectroute.selector.strict_json import JsonError, parse_json
from selectroute.spark.messages import DeadLetterBatch
from selectroute.spark.sources.files.reader import read
from selectroute.spark.sources.files.splits import plan
from tests.support.hostile_json import HOSTILE, NAMES, NOT_UTF_8
from tests.support.subscription_lines import read_subscriptions

PATH = "/v1/subscriptions"
CALLS = [("PUT", f"{PATH}/a"), ("POST", PATH), ("POST", f"{PATH}:batch"), ("POST", "/v1/messages:match")]


@pytest.mark.parametrize(("text", "said"), [*HOSTILE, NOT_UTF_8], ids=NAMES)
def test_hostile_json_is_refused_alike_everywhere(shared, text, said):
    for method, path in CALLS:
        answer = shared.request(method, path, content=text, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["detail"]) == (400, f"the body is {said}"), path
    lines = b'{"id": "x"}\n' + text + b'\n{"id": "y"}\n'
    answer = shared.post(f"{PATH}:import", content=lines, headers={"Content-Type": "application/x-ndjson"})
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["pointer"], fault["reason"]) == (422, "/1", said)
    with pytest.raises(JsonError) as refused:
        parse_json(text)
    assert str(refused.value) == said
    with pytest.raises(ImportLineError) as line:
        checked_lines([(7, text)], DEFAULT_LIMITS, EVERYTHING)
    assert str(line.value) == f"line 7: {said}"
    with pytest.raises(RecordError) as record:
        parsed(text)
    assert str(record.value) == f"the body is {said}"
    if (text, said) != NOT_UTF_8:
        with pytest.raises(InvalidLinesError) as found:
            read_subscriptions(['{"id": "x"}\n', text.decode() + "\n"])
        assert str(found.value) == f"line 2: {said}"


@pytest.mark.parametrize(("text", "said"), [*HOSTILE, NOT_UTF_8], ids=NAMES)
def test_a_hostile_line_of_a_job_is_a_dead_letter_and_the_others_are_messages(tmp_path, text, said):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"topic": "a"}\n' + text + b'\n{"topic": "b"}\n')
    splits = [split for task in plan([path], tmp_path, "auto", 1) for split in task]
    parts = [part for split in splits for part in read(split, (), 1 << 20)]
    (dead,) = [part for part in parts if isinstance(part, DeadLetterBatch)]
    assert (dead.rows.tolist(), dead.message, dead.raw) == ([1], f"the line is {said}", text[:65_536])
    assert [part.rows.tolist() for part in parts if part is not dead] == [[0, 2]]


def test_objects_that_span_lines_are_refused():
    with pytest.raises(InvalidLinesError, match=r"^line 1: not valid JSON"):
        read_subscriptions(['{"id": "a"}{"id":\n', '"b"}\n'])


def test_a_byte_order_mark_is_no_part_of_a_text(shared):
    marked = b'\xef\xbb\xbf{"id": "a", "selector": "x = 1"}'
    assert parse_json(marked) == parse_json(marked.decode()) == parsed(marked)
    assert read_subscriptions([marked.decode() + "\n"]).table["id"].to_pylist() == ["a"]
    assert checked_lines([(1, marked)], DEFAULT_LIMITS, EVERYTHING).numbers.tolist() == [1]
    body = b'\xef\xbb\xbf{"message": 1}'
    answer = shared.post("/v1/messages:match", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422


@pytest.mark.parametrize(
    "text",
    ['["\\ud83d\\ude00"]', "[1e308, -0, 0.1E-999]", ' {"a": {"a": "\\\\ud800"}, "b": []}\r\n', '"\u2028"'],
)
def test_what_is_strict_is_read(text):
    assert parse_json(text) == parse_json(text.encode()) == json.loads(text)
