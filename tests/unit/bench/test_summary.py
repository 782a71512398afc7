"""The summary of the record, and the pages that show it and the tables."""

import shutil

from bench import report
from bench.measure import Sample, read_csv
from bench.summary import summary_table


def test_each_row_has_the_median_of_its_engine_on_z():
    samples = [
        Sample("kernel", "kernel", "Z", 1_000, 100, place, 100 / rate)
        for place, rate in enumerate((1e6, 2e6, 9e6))
    ]
    samples += [
        Sample("kernel", "c", "Z", 1_000, 100, 0, 100 / 4e6),
        Sample("kernel", "kernel", "U", 1_000, 100, 0, 1.0),
        Sample("peers", "activemq", "Z", 10_000, 100, 0, 1.0),
    ]
    lines = summary_table(samples).split("\n")
    assert lines[0] == "| subscriptions | 1k | 10k | 100k | 1M |"
    assert lines[2].endswith("out | 2.00M | – | – | – |")
    assert lines[3].endswith("shape | 0.50 | – | – | – |")
    assert lines[-2].endswith("on one core | – | 100 | – | – |")
    assert lines[-1] == "| matches a message | 1 | 9 | 84 | 848 |"


def test_pages_show_the_record(tmp_path, monkeypatch):
    """Each page between its markers is what the record in the repository gives."""
    record = report.ROOT / "bench" / "record"
    pages = {
        page: tmp_path / f"{place}.md"
        for place, page in enumerate((report.README, report.SCALE_PAGE, *report.SUMMARIES))
    }
    for page, copy in pages.items():
        shutil.copy(page, copy)
    monkeypatch.setattr(report, "SUMMARIES", tuple(pages[page] for page in report.SUMMARIES))
    monkeypatch.setattr(report, "SCALE_PAGE", pages[report.SCALE_PAGE])
    monkeypatch.setattr(report, "README", pages[report.README])
    report.update_pages(read_csv(record / "samples.csv"), report.read_machine(record / "machine.json"))
    for page, copy in pages.items():
        assert copy.read_text() == page.read_text(), f"{page.name} differs: run `python -m bench --report`"
