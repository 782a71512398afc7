"""The C program finds what must be found where there is a compiler, and says why it is left out elsewhere."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

from bench.definition import sizes
from bench.engine import SkippedError
from bench.matching.ceiling import Ceiling, CeilingEngine, library
from bench.workloads import growth
from bench.workloads.oracle import Oracle
from bench.workloads.plain import messages, rules

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler on PATH"
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return library(tmp_path_factory.mktemp("ceiling"))


@needs_compiler
@pytest.mark.parametrize("name", ["c", "c-codes"])
@pytest.mark.parametrize(
    "size",
    [size for size in sizes() if size.workload in ("Z", "U") and size.rules <= 100_000],
    ids=lambda size: size.name,
)
def test_check_values(compiled, name, size):
    _, batch = messages(3_000)
    ceiling = Ceiling(compiled, rules(size.workload, size.rules))
    engine = CeilingEngine(name, ceiling, [batch.slice(0, 2_500), batch.slice(2_500)], size.checked)
    assert engine.judge() == size.check
    assert engine.run() == Oracle(rules(size.workload, size.rules)).expected(messages(3_000)[0]).matches


@needs_compiler
def test_ids_are_those_of_each_message_in_order(compiled):
    some, (sent, batch) = rules("Z", 5_000), messages(300)
    found = Ceiling(compiled, some)
    each = np.split(found.match(*found.codes(batch)), np.cumsum(Oracle(some).lengths(sent)))[:-1]
    for number, own in enumerate(each):
        equal = (some.type == sent.type[number]) & (some.color == sent.color[number])
        assert sorted(own.tolist()) == np.flatnonzero(equal & (some.weight < sent.weight[number])).tolist()


@needs_compiler
def test_strings_that_are_no_constant_match_nothing(compiled):
    found = Ceiling(compiled, rules("Z", 1_000))
    odd = ["", "t", "t00000001", "x1", "ü"]
    weights = pa.array([9_999] * len(odd), pa.int32())
    batch = pa.RecordBatch.from_pydict({"JMSType": odd, "color": ["c0"] * len(odd), "weight": weights})
    assert found.codes(batch)[0].tolist() == [-1] * len(odd)
    assert len(found.match(*found.codes(batch))) == 0


def test_without_a_compiler_it_is_skipped_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(SkippedError, match="no C compiler"):
        library(tmp_path / "none")


def test_a_compiler_that_fails_is_no_crash(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", shutil.which("false"))
    with pytest.raises(SkippedError, match="failed"):
        library(tmp_path / "fails")


@needs_compiler
def test_all_types_that_rules_have_are_looked_up(compiled):
    count = 200_000  # 2,000 types, where Z and U have 1,000
    sent, batch = growth.messages(count, 500)
    found = CeilingEngine("c", Ceiling(compiled, growth.rules(count)), [batch], 500)
    assert found.judge() == Oracle(growth.rules(count)).expected(sent)
