"""What a run writes: the record of all, or its own part of it."""

import json

import pytest

import bench.__main__ as command
from bench import report
from bench.measure import Sample, read_csv, write_csv
from bench.tour import Tour

KEPT = Sample("peers", "artemis", "Z", 1_000, 10, 0, 1.0)
OLD = Sample("parse", "lark-lalr", "S", 1_000, 10, 0, 1.0)
OTHER_SIZE = Sample("parse", "lark-lalr", "S", 10_000, 10, 0, 1.0)
NEW = Sample("parse", "lark-lalr", "S", 1_000, 10, 0, 2.0)


@pytest.fixture
def record(tmp_path, monkeypatch):
    folder = tmp_path / "record"
    folder.mkdir()
    write_csv(folder / "samples.csv", [OLD, KEPT, OTHER_SIZE])
    described = {
        "date": "2026-01-01", "cpu": "a CPU", "cores": 2, "memory_gib": 4, "system": "an OS",
        "load_average_at_start": 0.1, "source": "0123456789abcdef",
    }  # fmt: skip
    (folder / "machine.json").write_text(json.dumps(described))
    page = tmp_path / "README.md"
    page.write_text(f"{report.BEGIN}\n{report.END}\n")
    monkeypatch.setattr(command, "RECORD", folder)
    monkeypatch.setattr(report, "README", page)
    monkeypatch.setattr(report, "SCALE_PAGE", page)
    monkeypatch.setattr(report, "SUMMARIES", ())
    monkeypatch.setattr(Tour, "run", lambda tour, _: tour.samples.append(NEW))
    return folder


def test_a_later_run_takes_the_place_of_the_same_and_goes_behind_the_others(record):
    for _ in range(2):  # and once more, the same
        assert command.main(["--full", "--only", "parse", "--into-record"]) == 0
        assert read_csv(record / "samples.csv") == [KEPT, OTHER_SIZE, NEW]
        described = json.loads((record / "machine.json").read_text())
        assert described["source"] == "0123456789abcdef"
        assert [(one["benchmarks"], one["sizes"]) for one in described["later"]] == [(["parse"], ["S 1k"])]
    assert "| `parse` (S 1k) | 20" in report.README.read_text()


def test_a_run_of_which_nothing_is_left_is_not_named_any_more(record):
    described = json.loads((record / "machine.json").read_text())
    earlier = {"date": "2026-02-02", "load_average_at_start": 0.5, "source": "f" * 64}
    described["later"] = [
        earlier | {"benchmarks": names} for names in (["build", "parse"], ["parse", "single"])
    ]
    (record / "machine.json").write_text(json.dumps(described))
    write_csv(record / "samples.csv", [KEPT])
    assert command.main(["--full", "--only", "parse", "--into-record"]) == 0
    later = json.loads((record / "machine.json").read_text())["later"]
    assert [one["benchmarks"] for one in later] == [["build"], ["single"], ["parse"]]
    assert not any("sizes" in one for one in later)


def test_a_later_run_that_measured_nothing_is_not_named(record, monkeypatch):
    monkeypatch.setattr(Tour, "run", lambda tour, _: tour.failed.append("`parse` at S 1k"))
    before = (record / "machine.json").read_bytes()
    assert command.main(["--full", "--only", "parse", "--into-record"]) == 1
    assert (record / "machine.json").read_bytes() == before


def test_a_whole_run_keeps_what_is_measured_only_by_name(record):
    long = Sample("kafka-memory", "fan-out", "Z", 10_000, 10, 0, 1.0)
    write_csv(record / "samples.csv", [OLD, long])
    described = json.loads((record / "machine.json").read_text())
    run = {"date": "2026-02-02", "load_average_at_start": 0.5, "source": "f" * 64}
    described["later"] = [run | {"benchmarks": ["kafka-memory", "parse"]}, run | {"benchmarks": ["build"]}]
    (record / "machine.json").write_text(json.dumps(described))
    for _ in range(2):
        whole_run(record, failed=[])
        assert read_csv(record / "samples.csv") == [NEW, long]
        own = json.loads((record / "machine.json").read_text())["later"]
        assert own == [run | {"benchmarks": ["kafka-memory"]}]


def test_the_record_names_what_failed(record):
    whole_run(record, failed=["`parse` at S 10k"])
    assert "`parse` at S 10k failed; sources" in report.README.read_text()


def whole_run(record, failed):
    def run(tour, finished):
        tour.samples.append(NEW)
        tour.failed += failed
        finished(1, 1)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Tour, "run", run)
        assert command.main(["--full"]) == (1 if failed else 0)


def test_only_a_full_run_of_one_that_is_said_to_goes_into_the_record(record):
    before = (record / "samples.csv").read_bytes()
    for options in (["--full", "--only", "parse"], ["--only", "registry"]):  # a benchmark, and a group
        assert command.main(options) == 0
    for options in (["--into-record"], ["--full", "--into-record"]):
        with pytest.raises(SystemExit):
            command.main(options)
    assert (record / "samples.csv").read_bytes() == before
