"""The demo's folder and options, and the whole of it in small, through Spark."""

import json

import pytest
from rich.console import Console

from selectroute.demo.flights import DemoError
from selectroute.demo.folder import fresh_folder
from selectroute.demo.progress import Progress
from selectroute.demo.report import show
from selectroute.demo.run import Options, run


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


@pytest.mark.spark
def test_small_demo_runs_to_the_end_and_its_accounts_add_up(tmp_path):
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
    assert names == {"messages", "output", "snapshots", "subscriptions.jsonl", "summary.json"}
    console = Console(record=True, width=120, quiet=True)
    show(outcome, console)
