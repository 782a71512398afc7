"""The tables of jobs from Kafka to Kafka say what the samples say."""

from bench.measure import Sample
from tests.unit.bench.test_report import lines_of


def runs(engine, workload, rules, *seconds, used):
    """Samples of runs in turn, of a thousand messages each."""
    return [
        Sample("kafka-rates", engine, workload, rules, 1_000, turn, of, processor_seconds=used)
        for turn, of in enumerate(seconds)
    ]


def point(engine, p50, p99):
    return Sample("kafka-latency", engine, "R", 1_000_000, 100, 0, 1.0, p50_us=p50, p99_us=p99)


def test_a_multiple_is_that_of_the_same_turn():
    no_op = runs("no-op", "Z", 10_000, 1.0, 2.0, 4.0, used=0.1)
    lines = lines_of(no_op + runs("fan-out", "Z", 10_000, 2.0, 2.0, 5.0, used=0.05))
    assert "| Z 10k | `no-op` | 500 |  | 100.0 |  |" in lines
    assert "| Z 10k | `fan-out` | 500 | 0.80× (0.50–1.00) | 50.0 | 0.50× (0.50–0.50) |" in lines


def test_ours_stands_beside_the_relays_in_the_same_turn():
    samples = [
        *runs("fan-out", "R", 1_000_000, 4.0, 2.0, 1.0, used=0.2),
        *runs("relay", "R", 1_000_000, 1.0, 1.0, 1.0, used=0.1),
        *runs("relay-transactional", "R", 1_000_000, 2.0, 2.0, 2.0, used=0.4),
    ]
    lines = lines_of(samples)
    titles = "× `relay` | × `relay-transactional`"
    assert f"| workload | engine | messages/s | {titles} | µs of processor a message | {titles} |" in lines
    rates, used = "0.50× (0.25–1.00) | 1.0× (0.50–2.00)", "2.0× (2.00–2.00) | 0.50× (0.50–0.50)"
    assert f"| R 1M | `fan-out` | 500 | {rates} | 200.0 | {used} |" in lines
    assert not any("as a multiple" in one for one in lines)  # no table of shares besides


def test_latency_of_ours_is_a_multiple_of_the_relays_where_that_was_measured():
    samples = [
        point("no-op 1000 0", 1_000, 80_000),
        point("fan-out 1000 0", 1_000, 40_000),
        point("fan-out 1000 1", 1_000, 40_000),
        point("relay-transactional 1000 0", 1_000, 20_000),
    ]
    lines = lines_of(samples)
    assert "| R 1M | 0 s | 1.0k | 1 | 80 | 1 | 40 | 1 | 20 | 0.50× | 2.0× |" in lines
    assert "| R 1M | 1 s | 1.0k | – | – | 1 | 40 | – | – | – | – |" in lines


def test_a_curve_has_a_line_for_each_rate_and_trigger():
    samples = [
        point("no-op 5000 0.5", 400_000, 800_000),
        point("fan-out 5000 0.5", 500_000, 1_000_000),
        point("no-op 1000 0", 40_000, 80_000),
    ]
    lines = lines_of(samples)
    assert "| R 1M | 0.5 s | 5.0k | 400 | 800 | 500 | 1,000 | 1.2× |" in lines
    assert "| R 1M | 0 s | 1.0k | 40 | 80 | – | – | – |" in lines


def test_growth_is_that_after_the_first_five_minutes():
    samples = [
        Sample("kafka-memory", "driver", "Z", 10_000, 700, place, 30.0 * (place + 1), found * 2**20)
        for place, found in enumerate([0.0] * 9 + [100.0 + step for step in range(51)])
    ]
    lines = lines_of(samples)
    assert "| Z 10k | driver | 102 | 148 | +120 |" in lines
    assert any(line.startswith("(700 messages/s for 30 minutes;") for line in lines)


def test_what_a_process_holds_is_no_weight_of_a_rule():
    driver = Sample("kafka-memory", "driver", "Z", 10_000, 700, 0, 30.0, 2.0**30)
    lines = lines_of([driver, Sample("memory", "index", "Z", 10_000, 0, 0, 0.0, 777.0)])
    assert "| Z | `index` | 777 |" in lines
    assert not any("`driver`" in line for line in lines)
