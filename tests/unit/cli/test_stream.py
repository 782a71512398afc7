"""``selectroute stream`` and ``dead-letter``: what a job did, for people and for programs; exit codes."""

import json
import logging
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import selectroute as sr

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from selectroute import job_options
from selectroute.cli import dead_letter
from selectroute.cli.commands import stream_run
from selectroute.spark import job
from selectroute.spark.audit import outcomes as delivered
from selectroute.spark.audit.outcomes import _of_parquet
from selectroute.spark.batch.router import Router
from selectroute.spark.folder import OutputFolder
from selectroute.spark.job import Job
from selectroute.spark.replay.letters import REASONS, wanted_letters
from selectroute.spark.replay.replay import Replays
from selectroute.storage import Location
from tests.support.world import Files, note_plan

LINES = '{"properties": {"color": "red"}}\n{"properties": {}}\n{\n'


@pytest.fixture
def output(tmp_path):
    """The output of a job with one batch."""
    index = sr.Index()
    index.add("red", "color = 'red'")
    sr.publish(index.freeze(3), tmp_path / "snapshots")
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "a.jsonl"
    file.write_text(LINES)
    job = Job.of(tmp_path / "in", tmp_path / "snapshots", tmp_path / "out")
    folder = OutputFolder(job)
    folder.claim()
    folder.release()
    note_plan(job, 0, file)
    router = router_of(job)
    router.route(0, [file], "q")
    router.close()
    return job.output.path


def router_of(job):
    router = Router(job, Files(replace(job, max_files=1), 1))
    router.commits.prepare()
    return router


def route_another(output, text, **options):
    """Route a second file of the job."""
    path = output.parent / "in" / "b.jsonl"
    path.write_text(text)
    router = router_of(replace(job_of(output), **options))
    router.route(1, [path], "q")
    router.close()


def test_status_says_how_far_a_job_is(run, output):
    code, out, err = run("stream", "status", output)
    assert (code, err) == (0, "")
    assert "batch 0, revision 3" in out and "3 = 1 routed + 1 unrouted + 1 dead letter" in out
    code, out, _ = run("stream", "status", output, "-o", "json")
    found = json.loads(out)
    assert (found["batch"], found["published"], found["counts"]["deliveries"]) == (0, 3, 1)


def test_an_audit_of_what_adds_up_is_0(run, output):
    code, out, err = run("stream", "audit", output, "--recount")
    assert (code, err) == (0, "")
    assert "WRONG" not in out and "nothing is half done" in out
    code, out, _ = run("stream", "audit", output, "-o", "json")
    assert (code, json.loads(out)["findings"]) == (0, [])


def test_an_audit_that_finds_something_is_1_and_says_what(run, output):
    commit = output / "_commits" / "0.json"
    content = Location.of(commit).read_json()
    content["counts"]["routed"] = 2
    Location.of(commit).put_json(content)
    code, out, _ = run("stream", "audit", output)
    assert code == 1 and "WRONG       batch 0: it read 3 messages but accounts for 4" in out
    code, out, _ = run("stream", "audit", output, "-o", "json")
    assert (code, [finding["batch"] for finding in json.loads(out)["findings"]]) == (1, [0, 0])


def test_what_is_no_job_is_one_sentence(run, tmp_path):
    for command in (("stream", "status"), ("stream", "audit"), ("dead-letter", "replay")):
        code, out, err = run(*command, tmp_path)
        assert (code, out) == (3, "") and "no _job.json" in err
    assert list(tmp_path.iterdir()) == []


def test_dead_letters_are_listed_with_their_bytes(run, output):
    code, out, err = run("dead-letter", "list", output)
    assert (code, err) == (0, "")
    assert "batch 0  parse  not-json  a.jsonl, offset 2\n" in out and "'{'" in out
    code, out, _ = run("dead-letter", "list", output, "-o", "json")
    (letter,) = json.loads(out)
    assert (letter["offset"], letter["raw"], letter["subscription"]) == (2, "{", None)
    code, out, _ = run("dead-letter", "list", output, "--count", "-o", "ndjson")
    assert json.loads(out) == {"stage": "parse", "reason": "not-json", "count": 1}


@pytest.mark.parametrize("verb", ["list", "replay"])
def test_a_reason_or_stage_that_there_is_not_is_wrong_usage(run, output, verb):
    code, out, err = run("dead-letter", verb, output, "--reason", "notjson")
    assert (code, out) == (2, "") and "not-json" in " ".join(err.split())
    code, out, err = run("dead-letter", verb, output, "--stage", "reed")
    assert (code, out) == (2, "") and "read" in err


def test_the_reasons_that_can_be_asked_for_are_those_of_the_page_and_of_the_code():
    page = Path(__file__).parents[3].joinpath("docs/reference/errors.md").read_text()
    rows = re.findall(r"^\| (read|parse|judge|deliver) \| ([^|]*) \|", page, re.M)
    told = {(stage, reason) for stage, cell in rows for reason in re.findall("`([^`]+)`", cell)}
    known = {(stage, reason) for stage, reasons in REASONS.items() for reason in reasons}
    assert told == known
    source = "".join(path.read_text() for path in Path(job.__file__).parent.rglob("*.py"))
    assert set(re.findall(r'Dead\("(\w+)", "([\w-]+)"', source)) <= known


def test_dead_letters_are_chosen_by_batch_stage_and_reason(run, output):
    none = ["--batch", 1], ["--stage", "judge"], ["--reason", "too-deep"], ["--subscription", "red"]
    for chosen in (*none, ["--offset", 1], ["--source", "b.jsonl"], ["--partition", 1]):
        assert run("dead-letter", "list", output, *chosen) == (1, "", "no dead letters\n")
    one = ["--source", "a.jsonl", "--partition", 0, "--offset", 2]
    for chosen in (one, ["--batch", 0, "--stage", "parse", "--reason", "not-json"]):
        assert run("dead-letter", "list", output, *chosen)[0] == 0
    assert run("dead-letter", "replay", output, *one, "--dry-run")[0] == 0


def test_bytes_that_are_no_text_are_base64_and_many_letters_are_cut_off(run, output):
    table = pq.ParquetFile(next((output / "dead-letters" / "batch=0").iterdir())).read()
    raws = pa.array([b"\xff" * 300, None, b"x"], pa.binary())
    rows = pa.concat_tables([table] * 3).set_column(table.schema.get_field_index("raw"), "raw", raws)
    folder = output / "dead-letters" / "batch=-10"
    folder.mkdir()
    pq.write_table(rows, folder / "part.parquet")
    assert [letter.batch for letter in wanted_letters(output)] == [-10, -10, -10, 0]
    code, out, err = run("dead-letter", "list", output, "--limit", 2, "-o", "ndjson")
    first, second = map(json.loads, out.splitlines())
    assert first["raw_base64"].startswith("////") and second["raw"] is None
    assert (code, err) == (0, "and 2 more: --limit 0 prints all\n")


# ---- replays


def job_of(output):
    return Job.of(output.parent / "in", output.parent / "snapshots", output)


def replay_all(output):
    """What the job does between two batches."""
    router = router_of(job_of(output))
    replays = Replays(router)
    made = list(iter(lambda: replays.next("q"), None))
    router.close()
    return made


def test_those_that_no_replay_took_are_listed(run, output):
    assert run("dead-letter", "list", output, "--left", "--batch", 0)[0] == 0
    run("dead-letter", "replay", output)
    replay_all(output)
    assert run("dead-letter", "list", output, "--left", "--batch", 0)[::2] == (1, "no dead letters\n")
    letters = json.loads(run("dead-letter", "list", output, "-o", "json")[1])
    assert [(one["batch"], one["replay"]) for one in letters] == [(-1, None), (0, -1)]
    (made,) = (json.loads(path.read_text()) for path in (output / "_requests").glob("*.done.json"))
    assert made["letters"] == 1


def test_a_dry_run_counts_what_is_left_and_asks_for_nothing(run, output):
    code, out, err = run("dead-letter", "replay", output, "--dry-run")
    assert (code, err) == (0, "") and out.split() == ["1", "parse", "not-json"]
    assert replay_all(output) == []
    nothing = run("dead-letter", "replay", output, "--dry-run", "--reason", "too-deep", "-o", "json")
    assert nothing == (1, "", "no dead letters to replay\n")


def test_a_replay_that_is_asked_for_is_done_by_the_job_and_leaves_its_trace(run, output):
    code, out, err = run("dead-letter", "replay", output, "--stage", "parse", "-o", "ndjson")
    assert (code, err) == (0, "")
    line = json.loads(out)
    assert line["letters"] == 1
    out = run("stream", "status", output)[1]
    assert re.search(r"^waiting     1 requested replay, to be made at the next start$", out, re.M)
    (report,) = replay_all(output)
    assert "waiting" not in run("stream", "status", output)[1]
    assert report.kind == "replay"
    assert Location.of(output / "_commits" / "-1.json").read_json()["replay"]["request"] == line["request"]
    code, out, _ = run("stream", "status", output)
    assert "0 backfills, 1 replay" in out
    assert run("stream", "audit", output)[0] == 0
    code, out, err = run("dead-letter", "replay", output, "--batch", 0)
    assert (code, err) == (1, "no dead letters to replay\n")


def test_who_waits_is_told_what_came_of_it(run, output, monkeypatch):
    # Only what this module calls: threads of tests before may sleep, too.
    monkeypatch.setattr(dead_letter, "time", SimpleNamespace(sleep=lambda _: replay_all(output)))
    code, out, err = run("dead-letter", "replay", output, "--wait")
    assert code == 0
    assert "replay -1  revision 3  1 dead letter  1 message: 0 routed, 0 unrouted, 1 dead letter" in out
    assert "1 dead letter\nthe job is not running: it replays them at its next start\n" in err
    code, out, _ = run("dead-letter", "replay", output, "--wait", "-o", "json")
    (line,) = json.loads(out)
    assert (line["batch"], line["batches"], line["missing"]) == (-2, [-1], [])


def test_what_a_subscription_got_is_shown_with_its_messages(run, output):
    code, out, err = run("stream", "deliveries", output, "--subscription", "red", "-o", "ndjson")
    assert (code, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    lines = LINES.splitlines()
    assert found and all("red" in one["message"] for one in found)
    assert [one["message"] for one in found] == [lines[one["offset"]].strip() for one in found]
    assert {(one["batch"], one["revision"], one["source"]) for one in found} == {(0, 3, "a.jsonl")}
    red = ("stream", "deliveries", output, "--subscription", "red")
    assert json.loads(run(*red, "--limit", 1, "-o", "ndjson")[1]) == found[-1]
    assert "batch 0, revision 3, a.jsonl, offset " in run(*red)[1]
    assert run(*red, "--since", 1)[0] == 1
    assert run("stream", "deliveries", output, "--subscription", "nobody")[0] == 1


def test_who_got_a_message_is_shown_by_its_place(run, output):
    code, out, _ = run("stream", "deliveries", output, "--source", "a.jsonl", "--offset", 0)
    assert (code, out.splitlines()[0]) == (0, "batch 0, revision 3, a.jsonl, offset 0 to red")
    assert run("stream", "deliveries", output)[1] == out
    nobody = run("stream", "deliveries", output, "--source", "a.jsonl", "--offset", 1)
    assert nobody == (1, "", "no deliveries\n")
    for wrong in (["--source", "b.jsonl"], ["--partition", 1]):
        assert run("stream", "deliveries", output, *wrong)[0] == 1


def test_messages_that_no_subscription_got_are_shown(run, output):
    code, out, _ = run("stream", "unrouted", output)
    assert (code, out) == (0, 'batch 0, revision 3, a.jsonl, offset 1\n  {"properties": {}}\n')
    (one,) = json.loads(run("stream", "unrouted", output, "-o", "json")[1])
    assert (one["subscription"], one["offset"], one["message"]) == (None, 1, '{"properties": {}}')
    assert run("stream", "unrouted", output, "--offset", 0) == (1, "", "no unrouted messages\n")


def why(run, output, offset, *more, id="red", source="a.jsonl"):
    place = ("--subscription", id, "--source", source, "--offset", offset)
    return run("stream", "explain", output, *place, *more)


def test_why_a_message_of_the_job_was_delivered_or_not(run, output):
    code, out, err = why(run, output, 0)
    assert (code, err) == (0, "")
    assert out.startswith(
        "batch 0 read a.jsonl, offset 0, and judged it by revision 3\nred got it in batch 0\n"
        "red gets the message, at revision 3\n"
    )
    code, out, _ = why(run, output, 1)
    assert code == 0 and "red did not get it\nred does not get the message, at revision 3: " in out
    assert "color is NULL" in out
    found = json.loads(why(run, output, 1, "-o", "json")[1])
    assert (found["batch"], found["revision"], found["deliveries"]) == (0, 3, [])
    assert (found["verdict"]["matched"], found["verdict"]["selector"]["truth"]) == (False, "unknown")


def test_why_reads_a_message_of_any_size(run, output):
    color = "x" * (1 << 21)
    route_another(output, LINES.replace('{"properties": {}}', f'{{"properties": {{"color": "{color}"}}}}'))
    code, out, _ = why(run, output, 1, source="b.jsonl")
    assert code == 0 and out.startswith("batch 1 read b.jsonl, offset 1,") and "color is string 'xxx" in out


def test_why_names_the_dead_letter_of_a_line(run, output):
    code, out, _ = why(run, output, 2)
    assert code == 0 and "the message is a dead letter of batch 0: not-json: " in out
    found = json.loads(why(run, output, 2, "-o", "json")[1])
    assert (found["verdict"], [one["reason"] for one in found["dead_letters"]]) == (None, ["not-json"])
    assert found["unread"]


def test_why_says_what_a_replay_made_of_a_dead_letter(run, output):
    rows = [json.dumps({"properties": {"color": color}, "body": "long"}) for color in ("red", "blue")]
    route_another(output, "\n".join(rows) + "\n", max_message_bytes=20)
    run("dead-letter", "replay", output)
    replay_all(output)
    said = "the message is a dead letter of batch 1: too-large: "
    again = "the replay in batch {} judged it again, by revision 3: {}\n"
    for offset, came in ((0, "red got it"), (1, "red did not get it")):
        code, out, _ = why(run, output, offset, source="b.jsonl")
        assert code == 0 and said in out and again.format(-2, came) in out, out
    code, out, _ = why(run, output, 2)
    assert code == 0 and again.format(-1, "it is a dead letter again") in out
    found = json.loads(why(run, output, 1, "-o", "json", source="b.jsonl")[1])
    assert found["replays"] == [{"batch": -2, "revision": 3}]
    assert [(one["batch"], one["replay"]) for one in found["dead_letters"]] == [(1, -2)]


def test_why_judges_by_the_revision_of_the_batch(run, output):
    index = sr.Index()
    index.add("red", "color IS NULL")
    index.add("later", "")
    sr.publish(index.freeze(4), output.parent / "snapshots")
    assert "red did not get it\nred does not get the message, at revision 3" in why(run, output, 1)[1]
    code, out, _ = why(run, output, 1, id="later")
    assert code == 3 and out.splitlines()[-1] == "revision 3 has no subscription later"
    (output.parent / "snapshots" / "manifest-3.json").unlink()
    out = why(run, output, 1)[1]
    assert "revision 3 is no longer kept; by the newest, 4:\nred gets the message, at revision 4" in out


def test_why_of_a_message_that_is_not_there(run, output):
    code, _, err = why(run, output, 0, source="b")
    assert (code, err) == (3, "selectroute: no committed batch has read b, offset 0\n")
    code, _, err = why(run, output, 9)
    assert code == 3 and "has no line or row 9, counted from 0" in err
    file = output.parent / "in" / "a.jsonl"
    file.write_text("x")
    code, _, err = why(run, output, 0)
    assert code == 3 and "is not as batch 0 read it: it has 1 byte, and had" in err
    file.unlink()
    assert "is not as batch 0 read it: it is gone" in why(run, output, 0)[2]


def test_the_busiest_subscriptions_are_counted(run, output, monkeypatch):
    code, out, err = run("stream", "status", output, "--top", 3)
    assert (code, err) == (0, "") and re.search(r"^busiest     1  red$", out, re.M)
    assert "top" not in json.loads(run("stream", "status", output, "-o", "json")[1])
    (path,) = (output / "deliveries").rglob("*.parquet")
    ids = [f"s{n % 700}" for n in range(9_000)] + ["red"] * 20 + ["ab", "aa"] * 14
    rows = pq.ParquetFile(path).read().take(pa.array([0] * len(ids)))
    column = rows.schema.get_field_index("subscription")
    rows = rows.set_column(column, "subscription", pa.array(ids).cast(rows.schema.field(column).type))
    pq.write_table(rows, path, row_group_size=900)
    expected = sorted(Counter(ids).items(), key=lambda one: (-one[1], one[0]))
    for size in (1 << 18, 10):
        monkeypatch.setattr(delivered, "_COUNTED_ROWS", size)
        assert delivered.busiest(output, 5) == (expected[:5], 0)
        assert delivered.busiest(output, 10_000) == (expected, 0)
    top = json.loads(run("stream", "status", output, "--top", 2, "-o", "json")[1])["top"]
    assert top == [{"subscription": id, "deliveries": count} for id, count in expected[:2]]
    path.unlink()
    out = run("stream", "status", output, "--top", 2)[1]
    assert re.search(r"busiest +none\n +not counted, because moved away: 1 file$", out)


def test_a_message_whose_file_is_another_now_is_not_shown(run, output):
    file = output.parent / "in" / "a.jsonl"
    file.write_text("x")
    assert "was changed: it has 1 byte," in run("stream", "deliveries", output, "--subscription", "red")[1]
    file.unlink()
    assert "is gone" in run("stream", "deliveries", output, "--subscription", "red")[1]


def test_kafka_is_not_asked_for_what_came_from_files(run, output):
    for option in ("--kafka-servers", "--kafka-config"):
        code, out, err = run("stream", "deliveries", output, "--subscription", "red", option, "x:1")
        assert (code, out) == (2, "") and "the job reads files" in " ".join(err.split())


def test_a_message_is_read_from_the_row_group_that_has_it(tmp_path):
    pq.write_table(pa.table({"n": list(range(5_000))}), tmp_path / "a.parquet", row_group_size=1_500)
    for row in (0, 1_499, 1_500, 4_999):
        assert json.loads(_of_parquet(Location.of(tmp_path / "a.parquet"), row)) == {"n": row}
    assert _of_parquet(Location.of(tmp_path / "a.parquet"), 5_000) is None


def test_what_is_not_committed_was_not_delivered(run, output):
    (output / "_commits" / "0.json").rename(output / "_commits" / "0.gone")
    assert run("stream", "deliveries", output, "--subscription", "red")[0] == 1


FOLDERS = ("--input", "in", "--snapshots", "snapshots", "--output", "out")


@pytest.fixture
def options_of(run, monkeypatch):
    """A function that runs a command with its folders and flags, and returns the options of its job."""
    seen = []
    for name in ("_run", "_rerun"):
        monkeypatch.setattr(stream_run, name, lambda options, log, stop, **_: seen.append(options) or 0)

    def parsed(verb, *flags):
        code, _, err = run("stream", verb, *FOLDERS, *flags)
        assert code == 0, err
        return seen.pop()

    return parsed


def test_an_option_of_a_job_is_a_flag_or_a_variable_or_has_its_default(options_of, monkeypatch):
    default = stream_run.RunOptions(input="in", snapshots="snapshots", output="out")
    assert options_of("run", "--name", "", "--queues", "") == default, "an empty text is not given"
    assert options_of("rerun", "--into", "again") == default
    monkeypatch.setenv("SELECTROUTE_MAX_FILES_PER_TRIGGER", "7")
    monkeypatch.setenv("SELECTROUTE_TABLE_FORMAT", "delta")
    monkeypatch.setenv("SELECTROUTE_BIND", "a:int\nb=c d\n")
    monkeypatch.setenv("SELECTROUTE_UNROUTED_TOPIC", "a/#=fail")
    options = options_of("run", "--unrouted-topic", "b=drop", "--unrouted-topic", "c=keep")
    assert (options.max_files, options.table_format) == (7, "delta")
    assert options.bind == ("a:int", "b=c d") and options.unrouted_topics == ("b=drop", "c=keep")
    assert options_of("run", "--max-files-per-trigger", 8).max_files == 8


@pytest.mark.parametrize(
    ("verb", "flags", "said"),
    [
        ("run", ("--max-files-per-trigger", 0), "'--max-files-per-trigger'"),
        ("run", ("--unrouted", "burn"), "'keep', 'drop', 'fail'"),
        ("run", ("--destination-wait", "nan"), "--destination-wait"),
        ("run", ("--topic-separator", "."), "--topic-separator is for records of --kafka-topics"),
        ("rerun", ("--into", "again", "--compact-every", 3), "--compact-every"),
    ],
)
def test_an_option_that_a_job_does_not_take_is_wrong_usage(run, verb, flags, said):
    code, out, err = run("stream", verb, *FOLDERS, *flags)
    assert (code, out) == (2, "") and said in " ".join(err.replace("│", " ").split())


def test_each_option_of_a_job_has_a_text():
    assert all(option.help for option in job_options.options_of(stream_run.RunOptions).values())


def test_warnings_of_the_package_are_in_the_format_of_the_log(capsys):
    for log in ("text", "json"):
        with stream_run._quiet(stream_run._JobLog(log)):
            logging.getLogger("selectroute").warning("compiling %s", "it")
    text, as_json = capsys.readouterr().err.splitlines()
    assert text == "selectroute: compiling it"
    assert json.loads(as_json)["message"] == "compiling it"


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        (["flights"], "write NAME=OUTPUT"),
        (["a b=out"], "write NAME=OUTPUT"),
        (["a=OUT", "a=OUT"], "two jobs of the name 'a'"),
        (["a=."], "is not the output folder of a job"),
    ],
)
def test_a_service_is_told_of_jobs_that_there_are(run, output, tmp_path, jobs, said):
    given = [part for one in jobs for part in ("--job", one.replace("OUT", str(output)))]
    code, _, err = run("serve", "--registry", f"sqlite:///{tmp_path}/r.db", "--port", "0", *given)
    assert code != 0 and said in " ".join(err.replace("│", " ").split())
    assert not (tmp_path / "r.db").exists()
