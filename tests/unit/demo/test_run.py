"""The demo's folder and options, and the whole of it in small, through Spark."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from selectroute.demo.feed import Watch
from selectroute.demo.flights import DemoError
from selectroute.demo.pictures import deliveries_by_day
from selectroute.demo.progress import Progress
from selectroute.demo.report import next_commands, show
from selectroute.demo.run import Options, fresh_folder, run
from selectroute.demo.subscriptions import WATCHED, WATCHED_CHANGED
from selectroute.spark import BatchReport
from selectroute.spark.sinks.counts import Counts


def test_default_folder_is_the_first_free_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = fresh_folder(None)
    assert first == tmp_path / "selectroute-demo"
    (first / "summary.json").write_text("{}")
    assert fresh_folder(None) == tmp_path / "selectroute-demo-2"
    assert (first / "summary.json").exists()


def test_folder_with_anything_in_it_is_refused_and_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(DemoError, match="not an empty folder: name a new one with --out"):
        fresh_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(DemoError, match="not an empty folder"):
        fresh_folder(tmp_path / "out")


@pytest.mark.parametrize("wrong", [{"messages": 0}, {"subscriptions": 0}, {"verify": -1}, {"cores": 0}])
def test_impossible_options_are_refused_before_anything_is_made(tmp_path, wrong):
    with pytest.raises(DemoError):
        run(Options(**wrong, out=tmp_path / "out"), Progress(Console(quiet=True)))
    assert not (tmp_path / "out").exists()


def test_what_takes_long_is_said_before_where_there_is_no_terminal():
    console = Console(file=io.StringIO(), width=80)
    progress = Progress(console)
    with progress.stage("Spark came", "waiting for Spark"):
        assert console.file.getvalue() == "waiting for Spark …\n"
    assert console.file.getvalue().endswith(" s  Spark came\n")


def test_what_takes_long_has_a_spinner_on_a_terminal_that_goes_away():
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with Progress(console).stage("Spark came", "waiting for Spark"):
        pass
    written = console.file.getvalue()
    assert "waiting for Spark" in written and "waiting for Spark …" not in written
    assert written.endswith(" s  Spark came\n") and "\x1b[2K" in written  # erased before the last line


def test_warm_batches_are_all_but_the_first():
    watch = Watch(1, lambda report: None)
    assert watch.warm_rate() is None
    for batch, (messages, seconds) in enumerate([(10, 50.0), (100, 1.0), (500, 2.0)]):
        watch.batch(BatchReport(batch, 1, 1, Counts(messages), {"match": seconds / 2, "commit": seconds / 2}))
    assert watch.warm_rate() == 200


def test_commands_name_the_folder_as_seen_from_here_and_the_program_as_it_was_called(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    outcome = SimpleNamespace(folder=tmp_path / "my demo", busiest=[(WATCHED, 1)])
    assert next_commands(outcome)[0].endswith("selectroute stream status 'my demo/output' --top 3")
    monkeypatch.setattr("sys.argv", [".venv/bin/selectroute"])
    monkeypatch.setenv("PATH", "")
    assert next_commands(outcome)[0] == ".venv/bin/selectroute stream status 'my demo/output' --top 3"
    monkeypatch.setattr("sys.argv", ["/somewhere/selectroute/__main__.py"])
    assert next_commands(outcome)[0].startswith(f"{shlex.quote(sys.executable)} -m selectroute stream status")
    outcome.folder = Path("/elsewhere")
    assert next_commands(outcome)[0].endswith("status /elsewhere/output --top 3")


@pytest.mark.spark
def test_small_demo_runs_to_the_end_and_its_accounts_add_up(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    outcome = run(
        Options(messages=2_000, subscriptions=3_000, out=tmp_path / "out", verify=50),
        Progress(Console(quiet=True)),
    )
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary == outcome.summary
    assert summary["messages"] == summary["routed"] + summary["unrouted"] + summary["dead_lettered"] == 2_000
    assert summary["verified"]["differences"] == []
    assert summary["verified"]["judged"] == 50 * 3_000
    change = summary["change"]
    pins = [json.loads(path.read_text()) for path in (tmp_path / "out" / "output" / "pins").glob("*.json")]
    assert (
        min(pin["batch"] for pin in pins if pin["revision"] == change["revisions"][1])
        == change["first_batch"]
        > 0
    )
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "messages",
        "output",
        "report.html",
        "snapshots",
        "subscriptions.jsonl",
        "summary.json",
    }
    page = outcome.report.read_text()
    assert page.count("<svg") == page.count("</svg>") == 3 and "<script" not in page
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", page), "it needs nothing but itself"
    assert f"{summary['deliveries']:,}" in page and outcome.busiest[0][0].id in page
    assert "One delivery explained" in page and WATCHED.id in page
    first, days = deliveries_by_day(tmp_path / "out")
    assert days.sum() == summary["deliveries"] and len(days) == 365 and str(first) == "2013-01-01"
    rate = summary["messages_per_second_warm"]
    assert rate > summary["messages_per_second"]
    monkeypatch.chdir(tmp_path)
    console = Console(record=True, width=120, file=io.StringIO())
    show(outcome, console)
    shown = console.export_text()
    assert re.search(rf"messages per second of warm batches +│ +{rate:,}", shown)
    commands = re.findall("^  (selectroute .*)", shown.partition("Now try:\n")[2], re.M)
    assert [shlex.split(one)[1:3] for one in commands] == [
        ["stream", "status"],
        ["stream", "deliveries"],
        ["message", "match"],
    ]
    for command in commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), command
    assert WATCHED_CHANGED.selector in done.stdout
