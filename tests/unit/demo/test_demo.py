"""The demo's accounts, check, tables and page with the kernel in Spark's place, and the whole demo."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import selectroute as sr
from selectroute.cli import app
from selectroute.demo.data import (
    WATCHED,
    WATCHED_CHANGED,
    DemoError,
    generate,
    read_flights,
    sample,
    to_messages,
    write_messages,
)
from selectroute.demo.report import busiest, deliveries_by_day, next_commands
from selectroute.demo.run import DemoResult, new_folder
from selectroute.demo.verify import check
from selectroute.spark import BatchReport
from selectroute.spark.tables.schemas import Counts

MESSAGES = 20


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    """DemoResult of a correct run of two batches, the watched subscription changed between them."""
    folder = tmp_path_factory.mktemp("demo")
    data = sample(read_flights(), MESSAGES)
    wanted = generate(data, 300)
    outcome = DemoResult(folder, [WATCHED, WATCHED_CHANGED, *wanted[1:]])
    index = sr.Index()
    for each in wanted:
        index.add(each.id, each.selector, topic=each.topic)
    (folder / "output" / "pins").mkdir(parents=True)
    for sink in ("deliveries", "unrouted", "dead-letters"):
        (folder / "output" / sink).mkdir()
    for batch, path in enumerate(write_messages(to_messages(data), folder / "messages", files=2)):
        if batch == 1:
            index.replace(WATCHED.id, WATCHED_CHANGED.selector)
        outcome.batches.append(_route(folder / "output", batch, path, index.freeze()))
    return outcome


def _route(output, batch, path, snapshot):
    revision = batch + 1
    (output / "pins" / f"{batch}.json").write_text(json.dumps({"batch": batch, "revision": revision}))
    delivered, unrouted = [], []
    for row, ordinals in enumerate(snapshot.match(pq.read_table(path))):
        place = {"revision": revision, "source": path.name, "offset": row}
        ids = snapshot.ids.take(pa.array(ordinals)).to_pylist()
        delivered += [{"subscription": id, **place} for id in ids]
        unrouted += [] if ids else [place]
    _write(output / "deliveries" / f"batch={batch}" / "part.parquet", delivered)
    _write(output / "unrouted" / f"batch={batch}" / "part.parquet", unrouted)
    rows = pq.read_metadata(path).num_rows
    counts = Counts(rows, rows - len(unrouted), len(unrouted), deliveries=len(delivered))
    return BatchReport(batch, revision, 1, counts, {"match": 0.5, "commit": 1.5})


def _write(path, rows):
    if rows:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture
def outcome(routed, tmp_path):
    return DemoResult(shutil.copytree(routed.folder, tmp_path / "demo"), routed.subscriptions, routed.batches)


@pytest.fixture
def judge(outcome):
    return lambda: check(outcome.folder, outcome.subscriptions, MESSAGES)


@pytest.fixture
def rewrite(outcome):
    """Apply a change to the rows of a batch's deliveries; return the rows before."""

    def apply(batch, change):
        path = outcome.folder / "output" / "deliveries" / f"batch={batch}" / "part.parquet"
        rows = pq.ParquetFile(path).read().to_pylist()
        _write(path, change(rows))
        return rows

    return apply


@pytest.fixture
def demo(outcome, monkeypatch):
    """Run the command with an outcome instead of a run."""
    monkeypatch.setattr("selectroute.demo.run.run", lambda *_: outcome)
    return lambda: CliRunner().invoke(app, ["demo"], env={"COLUMNS": "120"})


def test_correct_deliveries_pass_and_every_pair_was_judged(judge):
    result = judge()
    assert (result.differences, result.messages, result.judged) == ([], MESSAGES, MESSAGES * 300)
    assert result.matches > 0


def test_lost_wrong_and_doubled_deliveries_are_found(judge, rewrite):
    rows = rewrite(0, lambda rows: rows[:3] + rows[4:])
    [difference] = judge().differences
    assert f"matches {rows[3]['subscription']}" in difference and "not delivered" in difference
    rewrite(0, lambda _: [*rows, {**rows[0], "subscription": "nobody"}])
    [difference] = judge().differences
    assert "delivered to nobody" in difference
    rewrite(0, lambda _: [*rows, rows[0]])
    [difference] = judge().differences
    assert "2 times" in difference


def test_messages_in_no_or_two_batches_and_another_revision_than_the_pin_are_found(outcome, judge):
    def all_differ(how):
        differences = judge().differences
        assert differences and all(how in difference for difference in differences)

    batch = outcome.folder / "output" / "deliveries" / "batch=1"
    pin = outcome.folder / "output" / "pins" / "1.json"
    pinned = pin.read_text()
    pin.write_text(json.dumps({"batch": 1, "revision": 1}))
    all_differ("pinned to 1")
    pin.write_text(pinned)
    shutil.copytree(batch, batch.with_name("batch=7"))
    all_differ("2 batches")
    shutil.rmtree(batch.with_name("batch=7"))
    shutil.rmtree(batch)
    all_differ("0 batches")


def test_lost_and_doubled_messages_are_an_error(outcome):
    outcome.account(MESSAGES)
    for wrong in (MESSAGES - 1, MESSAGES + 1):
        with pytest.raises(DemoError, match="lost or duplicated"):
            outcome.account(wrong)
    outcome.batches = [*outcome.batches, BatchReport(2, 2, 1, Counts(messages=1))]
    with pytest.raises(DemoError, match=f"{MESSAGES + 1} were fed, {MESSAGES + 1} read and {MESSAGES} are"):
        outcome.account(MESSAGES + 1)


def test_command_prints_counts_and_the_verdict_and_writes_a_page_that_needs_nothing(outcome, judge, demo):
    outcome.check = judge()
    result = demo()
    assert result.exit_code == 0, result.output
    deliveries = outcome.totals["deliveries"]
    assert re.search(rf"^messages +│ +{MESSAGES}$", result.output, re.M)
    assert re.search(rf"^deliveries +│ +{deliveries:,}$", result.output, re.M)
    assert re.search(r"^messages per second of warm batches +│ +5$", result.output, re.M)
    assert f"{MESSAGES} random messages" in result.output and "6,000 pairs" in result.output
    assert "holds from batch 1 on" in result.output
    page = (outcome.folder / "report.html").read_text()
    assert page.count("<svg") == page.count("</svg>") == 1 and "<script" not in page
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", page), "it needs nothing but itself"
    assert WATCHED_CHANGED.id in page and busiest(outcome.folder, 1)[0][0] in page
    assert "the deliveries are exactly these" in page


def test_difference_ends_the_command_with_code_1(outcome, judge, demo, rewrite):
    rewrite(1, lambda rows: [*rows, rows[0]])
    outcome.check = judge()
    result = demo()
    assert result.exit_code == 1 and "CHECK FAILED, 1 difference:" in result.output
    assert "2 times" in result.output


def test_deliveries_are_counted_by_subscription_and_by_day(outcome):
    counts = busiest(outcome.folder, 1_000)
    assert sum(count for _, count in counts) == outcome.totals["deliveries"]
    assert [count for _, count in counts] == sorted((count for _, count in counts), reverse=True)
    days, by_day = deliveries_by_day(outcome.folder)
    assert by_day.sum() == outcome.totals["deliveries"]
    assert str(days[0]) == "2013-01-01" and str(days[-1]).startswith("2013-1")


def test_run_without_a_delivery_has_a_page(outcome, demo):
    shutil.rmtree(outcome.folder / "output" / "deliveries")
    (outcome.folder / "output" / "deliveries").mkdir()
    result = demo()
    assert result.exit_code == 0, result.output
    assert "Not checked (--verify 0)" in result.output


def test_impossible_options_are_refused():
    for option in ("--messages=999", "--messages=336777", "--subscriptions=0", "--verify=-1"):
        result = CliRunner().invoke(app, ["demo", option])
        assert result.exit_code == 2 and f"Invalid value for '{option.partition('=')[0]}'" in result.output


def test_default_folder_is_the_first_new_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [new_folder(None).name for _ in range(3)]
    assert names == ["selectroute-demo", "selectroute-demo-2", "selectroute-demo-3"]


def test_folder_or_file_that_exists_is_refused(tmp_path):
    (tmp_path / "file").write_text("keep")
    for out in (tmp_path, tmp_path / "file"):
        with pytest.raises(DemoError, match="exists: name a new folder with --out"):
            new_folder(out)
    with pytest.raises(DemoError, match="cannot be created: Not a directory"):
        new_folder(tmp_path / "file" / "out")
    assert (tmp_path / "file").read_text() == "keep"


def test_commands_name_the_folder_as_seen_from_here_and_a_program_that_is_there(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/selectroute")
    assert next_commands(tmp_path / "my demo")[0] == "selectroute stream status 'my demo/output' --top 3"
    assert next_commands(Path("/elsewhere"))[0].endswith("status /elsewhere/output --top 3")
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("sys.executable", str(tmp_path / ".venv" / "bin" / "python"))
    assert next_commands(tmp_path)[0].startswith(".venv/bin/selectroute stream status")


@pytest.mark.spark
@pytest.mark.slow
def test_small_demo_runs_to_the_end_and_its_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--messages", "2000", "--subscriptions", "3000", "--verify", "50"]
    result = CliRunner().invoke(app, ["demo", *options], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "50 random messages" in result.output and "150,000 pairs" in result.output
    folder = tmp_path / "selectroute-demo"
    names = {"messages", "output", "report.html", "snapshots", "subscriptions.jsonl"}
    assert {path.name for path in folder.iterdir()} == names
    pins = [json.loads(path.read_text()) for path in (folder / "output" / "pins").glob("*.json")]
    changed_from = min(pin["batch"] for pin in pins if pin["revision"] == 2)
    assert changed_from > 0 and f"holds from batch {changed_from} on" in result.output
    _, by_day = deliveries_by_day(folder)
    assert 360 <= len(by_day) <= 365, "a year, from its first delivery to its last"
    assert re.search(rf"^deliveries +│ +{by_day.sum():,} *$", result.output, re.M)
    commands = re.findall("^  (.*selectroute (?:stream|message) .*)", result.output, re.M)
    named = [" ".join(shlex.split(each)[1:3]) for each in commands]
    assert named == ["stream status", "stream deliveries", "message match"]
    for command in commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), command
    assert WATCHED_CHANGED.selector in done.stdout
