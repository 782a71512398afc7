"""What is measured in Spark: the join a user would write, no-op UDFs, `route`, and the fan-out's reading
path.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, IntegerType

from bench.engine import Engine
from bench.engines import Built
from bench.oracle import Expected, Oracle
from bench.workloads import Ints, Triples, messages, selectors, with_body
from selectroute.spark import local_session, match_files, route

COLUMNS = ["JMSType", "color", "weight"]
FILE_ROWS = 25_000
"""Small enough that the fewest messages an engine is given still come as a file for each core."""


def start(cores: int) -> SparkSession:
    """Start Spark on this machine."""
    return local_session("selectroute bench", cores, log_level="OFF")


def write_files(folder: Path, count: int) -> list[Path]:
    """Write the first ``count`` messages as Parquet files, and one of the checked messages alone, named
    first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "checked.parquet"]
    pq.write_table(with_body(messages(2_000)[1]), paths[0])
    for number in range(count // FILE_ROWS):
        paths.append(folder / f"{number:04d}.parquet")
        pq.write_table(with_body(messages(FILE_ROWS, number * FILE_ROWS)[1]), paths[-1])
    return paths


class SparkEngine(Engine):
    """An engine that turns files of messages into a DataFrame of matches, written to a sink that does
    nothing.
    """

    name = ""

    def __init__(self, spark: SparkSession, paths: Sequence[Path], count: int) -> None:
        self.messages = count // FILE_ROWS * FILE_ROWS
        self.spark = spark
        self._checked = paths[:1]
        self._paths = paths[1 : 1 + count // FILE_ROWS]

    @abstractmethod
    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """Return the matches of the messages in some files."""

    @abstractmethod
    def count(self, matches: DataFrame) -> Expected:
        """Count what `matches` returned."""

    def judge(self) -> Expected:
        """See `bench.engine.Engine`."""
        return self.count(self.matches(self._checked))

    def run(self) -> None:
        """See `bench.engine.Engine`."""
        self.matches(self._paths).write.format("noop").mode("overwrite").save()

    def read(self, paths: Sequence[Path]) -> DataFrame:
        """The three columns that decide."""
        return self.spark.read.parquet(*map(str, paths)).select(*COLUMNS)


class Join(SparkEngine):
    """Messages joined with the broadcast rules, one row a match."""

    name = "join"

    def __init__(self, spark: SparkSession, paths: Sequence[Path], count: int, rules: Triples) -> None:
        super().__init__(spark, paths, count)
        table = pa.table(
            {
                "JMSType": pa.array([f"t{number}" for number in rules.type.tolist()]),
                "color": pa.array([f"c{number}" for number in rules.color.tolist()]),
                "above": pa.array(rules.weight, pa.int32()),
                "rule": pa.array(np.arange(len(rules)), pa.int32()),
            }
        )
        path = paths[0].parent / f"rules-{len(rules)}.parquet"
        pq.write_table(table, path)
        self._rules = spark.read.parquet(str(path))

    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """See `SparkEngine`."""
        joined = self.read(paths).join(F.broadcast(self._rules), ["JMSType", "color"])
        return joined.where("weight > above").select("rule")

    def count(self, matches: DataFrame) -> Expected:
        """See `SparkEngine`."""
        return _expected(matches.agg(F.count("rule"), F.sum("rule")))


class When(SparkEngine):
    """One CASE WHEN a rule, the numbers of those that hold in an array."""

    name = "when"

    def __init__(self, spark: SparkSession, paths: Sequence[Path], count: int, rules: Triples) -> None:
        super().__init__(spark, paths, count)
        each = (f"CASE WHEN {text} THEN {rule} END" for rule, text in enumerate(selectors(rules)))
        self._all = f"array_compact(array({', '.join(each)})) AS rules"

    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """See `SparkEngine`."""
        return self.read(paths).selectExpr(self._all)

    def count(self, matches: DataFrame) -> Expected:
        """See `SparkEngine`."""
        return _expected(matches.select(F.explode("rules").alias("rule")).agg(F.count("rule"), F.sum("rule")))


class _Arrays(SparkEngine):
    """Engines whose result is ``subscriptions array<int>`` of ordinals."""

    def __init__(self, spark: SparkSession, paths: Sequence[Path], count: int, built: Built) -> None:
        super().__init__(spark, paths, count)
        self.snapshot = built.snapshot
        self._built = built

    def count(self, matches: DataFrame) -> Expected:
        """See `SparkEngine`."""
        each = matches.select(F.explode("subscriptions").alias("ordinal")).toArrow()["ordinal"].to_numpy()
        return Expected(len(each), int(self._built.rule_numbers[each].sum()))


class Route(_Arrays):
    """`selectroute.spark.route` on the DataFrame."""

    name = "route"

    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """See `SparkEngine`."""
        return route(self.read(paths), self.snapshot).select("subscriptions")


class Files(_Arrays):
    """The fan-out's reading path: the workers read the files."""

    name = "files"

    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """See `SparkEngine`."""
        return match_files(self.spark, list(paths), self.snapshot, place=False)


class NoOp(SparkEngine):
    """An `arrow_udf` of the same columns that does nothing: ints out, or arrays as long as the true
    matches.
    """

    def __init__(
        self, spark: SparkSession, paths: Sequence[Path], count: int, lengths: Ints | None, check: Expected
    ) -> None:
        super().__init__(spark, paths, count)
        self.name = "noop-int" if lengths is None else "noop-array"
        nothing: Any = _ints if lengths is None else _arrays(lengths)
        kind: Any = IntegerType() if lengths is None else ArrayType(IntegerType())
        self._nothing: Any = arrow_udf(nothing, kind)
        self._check = check

    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """See `SparkEngine`."""
        return self.read(paths).select(self._nothing(*COLUMNS).alias("nothing"))

    def count(self, matches: DataFrame) -> Expected:
        """It matches nothing; that every message came through is all there is to check."""
        return self._check if matches.count() == 2_000 else Expected(-1, -1)


def _ints(types: pa.Array, _colors: pa.Array, _weights: pa.Array) -> pa.Array:
    return pa.array(np.zeros(len(types), np.int32))


def _arrays(lengths: Ints) -> Callable[..., Any]:
    """Return the no-op whose arrays have the lengths of the workload's first messages, again and again."""

    def arrays(types: pa.Array, _colors: pa.Array, _weights: pa.Array) -> pa.Array:
        offsets = np.zeros(len(types) + 1, np.int32)
        np.cumsum(np.resize(lengths, len(types)), out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.zeros(offsets[-1], np.int32)))

    return arrays


def engines(
    spark: SparkSession, paths: Sequence[Path], rules: Triples, built: Built, check: Expected
) -> dict[str, Callable[[int], SparkEngine]]:
    """Return how to make each engine for a number of messages."""
    lengths = Oracle(rules).lengths(messages(FILE_ROWS)[0])
    return {
        "join": lambda count: Join(spark, paths, count, rules),
        "when": lambda count: When(spark, paths, count, rules),
        "noop-int": lambda count: NoOp(spark, paths, count, None, check),
        "noop-array": lambda count: NoOp(spark, paths, count, lengths, check),
        "route": lambda count: Route(spark, paths, count, built),
        "files": lambda count: Files(spark, paths, count, built),
    }


def _expected(row: DataFrame) -> Expected:
    [[count, total]] = row.collect()
    return Expected(int(count), int(total or 0))
