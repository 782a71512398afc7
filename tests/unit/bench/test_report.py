"""The tables say what the samples say, and which engine was left out, and why."""

import pytest

from bench import report
from bench.engine import Engine, Timed
from bench.measure import Sample, WrongCountError, measure, read_csv, write_csv
from bench.workloads.oracle import Expected

MACHINE = {
    "date": "2026-01-01", "cpu": "a CPU", "cores": 2, "memory_gib": 4, "system": "an OS",
    "load_average_at_start": 0.1, "source": "0123456789abcdef",
}  # fmt: skip


def _sample(benchmark, engine, workload, rules, rate, **more):
    return Sample(benchmark, engine, workload, rules, 1_000, 0, 1_000 / rate, **more)


def lines_of(samples):
    return report.render(samples, MACHINE).split("\n")


def test_a_share_of_the_baseline_stands_beside_each_rate():
    samples = [
        _sample("kernel", "c", "Z", 1_000, 10_000_000),
        _sample("kernel", "kernel", "Z", 1_000, 4_000_000),
        _sample("kernel", "numpy", "Z", 1_000, 50_000),
        _sample("kernel", "kernel", "R", 10_000, 900),
    ]
    lines = lines_of(samples)
    assert "| workload | engine | 1k | 10k |" in lines
    assert "| Z | `c` | 10.00M | – |" in lines
    assert "| Z | `kernel` | 4.00M (0.40×) | – |" in lines
    assert "| Z | `numpy` | 50.0k (1/200) | – |" in lines
    assert "| R | `kernel` | – | 900 |" in lines


def test_adversarial_rows_have_their_engines_side_by_side():
    rates = {"kernel": 3_000, "numpy": 2_000}
    lines = lines_of([_sample("adversarial", engine, "or", 1, rate) for engine, rate in rates.items()])
    assert "| `or` | 1 | 3.0k (1.5×) | 2.0k |" in lines


def test_shares_of_both_no_ops_stand_in_a_table_of_their_own():
    rates = {"join": 100, "noop-array": 1_000, "noop-no-nulls": 1_250, "files": 5_000, "route": 900}
    lines = lines_of([_sample("spark", engine, "Z", 1_000, rate) for engine, rate in rates.items()])
    assert "| workload | as a multiple | 1k |" in lines
    assert "| Z | `files` of `noop-array` | 5.0× |" in lines
    assert "| Z | `files` of `noop-no-nulls` | 4.0× |" in lines
    assert "| Z | `route` of `noop-array` | 0.90× |" in lines
    assert not any("`files-auto` of" in line for line in lines)  # it was not run


def test_a_registry_that_is_loaded_has_rates_times_and_the_most_memory():
    samples = [
        Sample("load", "load", "R", 1_000_000, 1_000_000, 0, 4.0, 2**20 * 512 / 1_000_000),
        *(Sample("load", "change", "R", 1_000_000, 1, n, 0.01 * n) for n in (1, 2, 3)),
        Sample("load", "open", "R", 1_000_000, 1_000_000, 0, 1.5),
        Sample("load", "stream", "R", 1_000_000, 2_000_000, 0, 4.0),
    ]
    lines = lines_of(samples)
    assert "| `load` | subscriptions/s | 250.0k |" in lines
    assert "|  | MiB in memory, at most | 512 |" in lines
    assert "| `change` | s | 0.02 |" in lines
    assert "| `open` | s | 1.50 |" in lines
    assert "| `stream` | messages/s | 500.0k |" in lines


def test_cores_have_processor_time_under_each_master():
    samples = [
        Sample("cores", f"route {master}", "Z", 100_000, 1_000, 0, 0.5, processor_seconds=used)
        for master, used in (("local[1]", 0.003), ("local-cluster[2,1,1024]", 0.005))
    ]
    lines = lines_of(samples)
    assert "| workload | engine | `local[1]` | `local-cluster[2,1,1024]` |" in lines
    assert "| Z 100k | `route` | 3.0 (2.0k) | 5.0 (2.0k) |" in lines


@pytest.mark.parametrize("name", ["kernel", "partitions"])
def test_the_page_on_scale_changes_only_with_a_record_of_it(name, tmp_path, monkeypatch):
    for page in ("README", "SCALE_PAGE"):
        path = tmp_path / page
        path.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
        monkeypatch.setattr(report, page, path)
    monkeypatch.setattr(report, "SUMMARIES", ())
    engine = {"kernel": "kernel", "partitions": "route"}[name]
    report.update_pages([_sample(name, engine, "Z", 1_000, 1_000)], MACHINE)
    assert f"`{engine}` | 1.0k" in (tmp_path / "README").read_text()
    scale = (tmp_path / "SCALE_PAGE").read_text()
    assert scale.startswith("before\n") and scale.endswith("\nafter\n")
    assert ("\nold\n" in scale) == (name == "kernel")
    assert ("../bench/record/samples.csv" in scale) == (name == "partitions")


def test_latency_is_shown_in_microseconds():
    samples = [_sample("single", "index", "Z", 1_000, 5_000, p50_us=12.34, p99_us=1_234.5)]
    assert "| Z | `index` | 5.0k (12.3 / 1,234) |" in lines_of(samples)


def test_memory_is_what_any_benchmark_knows_of_it():
    samples = [
        _sample("kernel", "kernel", "Z", 10_000, 1, bytes_a_rule=47.4),
        Sample("memory", "index", "Z", 10_000, 0, 0, 0.0, 1_653.0),
    ]
    lines = lines_of(samples)
    assert "| Z | `kernel` | 47 |" in lines
    assert "| Z | `index` | 1,653 |" in lines


def test_the_memory_of_a_process_stands_beside_its_start_and_is_no_rules():
    samples = [
        Sample("registry-start", "import", "R", 1_000, 0, 0, 2.0),
        Sample("registry-start", "start", "R", 1_000, 0, 0, 3.0, 104_857.6),
        Sample("memory", "index", "R", 1_000, 0, 0, 0.0, 1_653.0),
    ]
    lines = lines_of(samples)
    assert "| `import` | s | 2.00 |" in lines
    assert "| `start` | s | 3.00 |" in lines
    assert "|  | MiB in memory | 100 |" in lines
    assert sum("104,858" in line for line in lines) == 1
    assert not any("`start` | 104,858" in line for line in lines)


def test_a_later_run_of_what_is_shown_is_named_with_its_sources():
    run = {"benchmarks": ["build", "kernel"], "date": "2026-02-02", "load_average_at_start": 0.5}
    run["source"] = "f" * 64
    shown = [_sample("kernel", "kernel", "Z", 1_000, 1), Sample("build", "build", "Z", 1_000, 0, 0, 1.5)]
    text = report.render(shown, {**MACHINE, "later": [run]})
    assert "| `build`, `kernel` | 2026-02-02 | 0.5 | ffffffffffff |" in text
    assert report.render(shown, {**MACHINE, "later": [{**run, "cpu": MACHINE["cpu"]}]}) == text
    elsewhere = report.render(shown[:1], {**MACHINE, "later": [{**run, "cpu": "Another"}]})
    assert "| `kernel` | 2026-02-02, Another | 0.5 | ffffffffffff |" in elsewhere
    assert "run of its own" not in report.render([], {**MACHINE, "later": [run]})


def test_steps_add_up():
    steps = {"build": 1.5, "publish": 0.5}
    lines = lines_of([Sample("build", step, "Z", 1_000, 0, 0, seconds) for step, seconds in steps.items()])
    assert "| Z | **text to snapshot, s** | **2.00** |" in lines
    assert "| Z | selectors a second | 500 |" in lines


def test_who_was_left_out_is_named_with_the_reason():
    samples = [_sample("peers", "kernel", "Z", 1_000, 1_000)]
    text = report.render(samples, {**MACHINE, "skipped": {"artemis": "needs a JDK", "c": "no C compiler"}})
    assert "`artemis` was skipped: needs a JDK." in text
    assert "no C compiler" not in text  # it is no engine of this table


class Fixed(Engine):
    name, messages = "fixed", 10

    def __init__(self, found, runs):
        self._found, self._runs = found, iter(runs)

    def judge(self):
        return self._found

    def run(self):
        return next(self._runs)


@pytest.mark.parametrize(
    ("runs", "must_find", "check", "sentence"),
    [
        ([], None, Expected(2, 2), "fixed found"),
        ([5, Timed(6, 1.0)], None, Expected(1, 1), "found 6 matches, before it were 5"),
        ([0, 0], 10, Expected(1, 1), "a run of fixed found 0, and not 10"),
    ],
)
def test_a_wrong_count_ends_the_run(runs, must_find, check, sentence):
    engine = Fixed(Expected(1, 1), runs)
    engine.must_find = must_find
    with pytest.raises(WrongCountError, match=sentence):
        measure("b", "Z", 1, [engine], check, 1)


def test_an_engine_may_keep_the_clock_itself():
    engine = Fixed(Expected(1, 1), [5, Timed(5, 4.0, [1_000, 3_000])])
    [sample] = measure("b", "Z", 1, [engine], Expected(1, 1), 1)
    assert (sample.seconds, sample.rate, sample.p50_us) == (4.0, 2.5, 2.0)


def test_the_raw_record_is_read_as_it_was_written(tmp_path):
    samples = [_sample("single", "index", "Z", 1_000, 500, bytes_a_rule=1.5, p50_us=2.25, p99_us=3.5)]
    write_csv(tmp_path / "samples.csv", samples)
    assert read_csv(tmp_path / "samples.csv") == samples
