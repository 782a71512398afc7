"""``selectroute index``: what it prints, where, and with which exit code."""

import errno
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import selectroute as sr
from selectroute.cli import main
from selectroute.match.columns.from_messages import from_messages

LINES = (
    '{"id": "heavy", "topic": "cars/+", "selector": "JMSType = \'car\' AND weight > 2500", "name": "h"}\n'
    "\n"
    '{"id": "like", "selector": "x LIKE \'a%\'", "dialect": "jms", "from": 3, "to": null}\n'
    '{"id": "old", "selector": "x = 1", "from": 1, "to": 3}\n'
    '{"id": "all", "selector": null}\n'
)


@pytest.fixture
def built(run, tmp_path):
    code, out, _ = run("index", "build", "-", tmp_path / "snapshots", "-o", "json", stdin=LINES)
    assert code == 0
    assert json.loads(out)["subscriptions"] == 3
    return tmp_path / "snapshots"


def test_build_takes_the_rows_that_still_are_valid(run, built):
    code, out, _ = run("index", "stats", built, "-o", "json")
    found = json.loads(out)
    assert (code, found["revision"], found["subscriptions"]) == (0, 1, 3)
    assert found["reads"] == ["@topic", "JMSType", "weight", "x"]
    assert found["scanned"] == {"it matches every message": 1}  # a prefix is a key


def test_build_of_a_revision_takes_the_rows_that_were_valid_then(run, tmp_path):
    for revision in (2, 3):
        code, out, _ = run("index", "build", "-", tmp_path, "--revision", revision, "-o", "json", stdin=LINES)
        found = json.loads(out)
        assert (code, found["revision"], found["subscriptions"]) == (0, revision, 3)


def test_tables_are_for_people(run, built):
    _, out, err = run("index", "stats", built)
    assert "3 subscriptions" in out and "(scan list)" in out and err == ""
    code, out, _ = run("index", "verify", built)
    assert code == 0 and "sound" in out


def test_an_invalid_selector_is_underlined_and_its_line_named(run, tmp_path):
    code, out, err = run("index", "build", "-", tmp_path / "s", stdin='{"id": "a", "selector": "x = \'b"}\n')
    assert (code, out) == (5, "") and "Traceback" not in err
    assert "unterminated-string" in err and "^^" in err and "<stdin>:1: subscription 'a'" in err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[]", "<stdin>:1: a subscription must be an object"),
        ('{"id": 5}', "/id: an id must be a string"),
        ('{"selector": ""}', "/id: a line needs an id"),
        ('{"id": "a", "selector": 5}', "/selector: selector must be a string"),
        ('{"id": "a", "from": true}', "/from: must be a revision"),
        ('{"id": "a b"}', "is not a valid subscription id"),
        ('{"id": "a", "topic": "x+"}', "+ and # must be whole levels"),
        ('{"id": "a", "dialect": "jsm"}', "did you mean 'jms'?"),
        ('{"id": "a"}\n{"id": "a"}', "<stdin>:2: subscription 'a' exists already"),
    ],
)
def test_a_line_that_is_no_subscription_is_named(run, tmp_path, line, sentence):
    code, _, err = run("index", "build", "-", tmp_path / "s", stdin=line + "\n")
    assert code == 1 and sentence in err and "Traceback" not in err
    assert not (tmp_path / "s").exists()


def test_exit_codes_tell_missing_from_conflict_from_damage(run, built, tmp_path):
    assert run("index", "stats", tmp_path / "none")[0] == 3
    assert run("index", "merge", tmp_path / "none")[0] == 3
    assert not (tmp_path / "none").exists()
    assert run("index", "stats", built, "--revision", 9)[0] == 3
    assert run("index", "build", tmp_path / "none.jsonl", tmp_path)[0] == 3
    assert run("index", "build", "-", built, "--revision", 1, stdin=LINES)[0] == 4
    [segment] = (built / "segments").iterdir()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 4
    segment.write_bytes(data)
    code, _, err = run("index", "verify", built)
    assert code == 1 and "is damaged" in err
    assert run("index", "frobnicate")[0] == 2


def test_input_that_is_not_utf_8_is_one_sentence(run, tmp_path):
    (tmp_path / "s.jsonl").write_bytes(b'{"id": "\xff"}\n')
    code, _, err = run("index", "build", tmp_path / "s.jsonl", tmp_path / "s")
    assert code == 1 and err.endswith("s.jsonl:1: not valid UTF-8 at byte 9\n") and err.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_standard_input_is_utf_8_whatever_the_locale(run, tmp_path):
    from selectroute import Snapshot

    line = '{"id": "s", "selector": "city = \'Zürich\'"}\n'
    assert run("index", "build", "-", tmp_path, stdin=line)[0] == 0
    assert Snapshot.open(tmp_path).subscriptions["selector"].to_pylist() == ["city = 'Zürich'"]
    assert not sys.stdin.closed and not sys.stdin.buffer.closed


class Unreadable(io.RawIOBase):
    def readable(self):
        return True

    def readinto(self, _):
        raise OSError(errno.EIO, "Input/output error")


def test_a_failing_read_is_one_sentence(run, tmp_path):
    code, _, err = run("index", "build", "-", tmp_path / "s", stdin=Unreadable())
    assert (code, err) == (1, "selectroute: standard input cannot be read: Input/output error\n")


def test_a_closed_standard_input_is_one_sentence(run, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "argv", ["selectroute", "index", "build", "-", str(tmp_path)])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 1


COMMAND = [sys.executable, "-c", "from selectroute.cli import main; main()"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("output", ["json", "table"])
def test_a_full_disk_under_standard_output_is_one_sentence(built, output, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [*COMMAND, "index", "stats", built, "-o", output]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    said = "selectroute: a result cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize(
    ("output", "unbuffered"),
    [
        ("json", ""),
        ("table", "1"),
        pytest.param("json", "1", marks=pytest.mark.slow),
        pytest.param("table", "", marks=pytest.mark.slow),
    ],
)
def test_a_reader_that_went_away_is_told_nothing(built, output, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [*COMMAND, "index", "stats", built, "-o", output]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdout.close()
    assert (running.communicate(timeout=60)[1], running.returncode) == (b"", 1)


@pytest.mark.parametrize("verb", ["build", "stats", "verify"])
def test_a_revision_is_a_64_bit_integer(run, built, verb):
    arguments = ["-", built] if verb == "build" else [built]
    assert run("index", verb, *arguments, "--revision", 2**63)[0] == 2
    assert run("index", verb, *arguments, "--revision", 2**63 - 1)[0] == (0 if verb == "build" else 3)


def test_merge_makes_one_segment_of_several(run, built):
    sr.publish(sr.Snapshot.open(built).changed([sr.Remove("all"), sr.Add("new", "x = 'abc'")]), built)
    code, out, _ = run("index", "merge", built, "-o", "json")
    found = json.loads(out)
    assert (code, found["revision"], found["subscriptions"]) == (0, 3, 3)
    assert found["segments"] == {"before": 2, "after": 1}
    assert sorted(sr.Snapshot.open(built).ids.to_pylist()) == ["heavy", "like", "new"]
    code, out, _ = run("index", "merge", built)
    assert code == 0 and "revision 3: 3 subscriptions, 1 segment merged into 1" in out


def test_collect_removes_what_nobody_needs(run, built):
    for number in range(3):
        sr.publish(sr.Snapshot.open(built).changed([sr.Add(f"new{number}")]), built)
    code, out, _ = run("index", "collect", built, "--keep", 1, "-o", "json")
    assert (code, json.loads(out)["revisions"]) == (0, [])  # the grace
    code, out, _ = run("index", "collect", built, "--keep", 1, "--grace", 0, "-o", "json")
    assert json.loads(out)["revisions"] == [1, 2, 3]
    assert len(sr.Snapshot.open(built)) == 6
    assert run("index", "stats", built, "--revision", 1)[0] == 3
    assert "0 revisions and 0 files removed, 0 bytes" in run("index", "collect", built)[1]


def test_a_misspelt_field_is_refused_with_the_file_and_the_line(run, tmp_path):
    """It was a subscription without a selector, which gets every message."""
    file = tmp_path / "bad.jsonl"
    file.write_text('{"id": "a"}\n{"id": "x", "selektor": "a=1"}\n')
    code, out, err = run("index", "build", file, tmp_path / "s")
    assert (code, out) == (1, "")
    sentence = "/selektor: a subscription has no field `selektor`: did you mean `selector`?"
    assert err == f"selectroute: {file}:2: {sentence}\n"
    assert not (tmp_path / "s").exists()


def test_all_errors_of_a_file_are_told_at_once(run, tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text('{"id": "a", "selector": "x ="}\n' + "{\n" * 30)
    code, _, err = run("index", "build", file, tmp_path / "s")
    assert code == 5  # of the first
    assert err.startswith(f"selectroute: 31 lines of {file} are invalid\n{file}:1: subscription 'a': ")
    assert err.count(f"{file}:") == 20 and f"\n{file}:20: not valid JSON: " in err
    assert err.endswith("\nand 11 more\n")


def test_selectors_that_are_probably_mistaken_are_told_of(run, tmp_path):
    lines = "".join(f'{{"id": "s{n}", "selector": "a = \'1\' AND a = \'2\'"}}\n' for n in range(7))
    code, out, err = run("index", "build", "-", tmp_path / "s", stdin=lines + '{"id": "fine"}\n')
    assert code == 0 and out.startswith("revision 1: 8 subscriptions")
    assert err.startswith("warning: 7 selectors are probably mistaken:\n  s0: always-false: no message can")
    assert err.count("always-false") == 5 and "  and 2 more" in err


def test_build_takes_larger_limits(run, tmp_path):
    colors = ", ".join(f"'color-{i:05}'" for i in range(2_000))
    long = json.dumps({"id": "long", "selector": f"color IN ({colors})"}) + "\n"
    code, _, said = run("index", "build", "-", tmp_path / "a", stdin=long)
    assert code != 0 and "10,240" in said
    code, _, said = run("index", "build", "-", tmp_path / "a", "--selector-length", "100000", stdin=long)
    assert code == 0, said
    message = sr.Message(properties={"color": "color-01999"})
    snapshot = sr.Snapshot.open(tmp_path / "a")
    assert snapshot.match(from_messages([message], snapshot.reads)).ids().to_pylist() == [["long"]]
    assert run("index", "verify", tmp_path / "a")[0] == 0
    assert run("index", "merge", tmp_path / "a")[0] == 0
    deep = json.dumps({"id": "deep", "selector": "(" * 300 + "a = 1" + ")" * 300}) + "\n"
    assert run("index", "build", "-", tmp_path / "b", stdin=deep)[0] != 0
    assert run("index", "build", "-", tmp_path / "b", "--selector-nesting", "300", stdin=deep)[0] == 0
    many = long.replace("color IN", "NOT color IN")
    assert run("index", "build", "-", tmp_path / "c", "--selector-items", "1999", stdin=many)[0] != 0
