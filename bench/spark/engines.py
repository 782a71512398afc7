"""Engines in Spark: the join a user would write, no-op UDFs, `route`, whole and in partitions, and
the fan-out's reading path.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import ArrayType, BinaryType, IntegerType

from bench import ROOT
from bench.definition import Size
from bench.engine import Engine
from bench.matching.engines import Built
from bench.workloads.catalogue import WORKLOADS
from bench.workloads.oracle import Expected, Oracle
from bench.workloads.plain import Ints, Triples, messages, selectors, with_body
from selectroute.spark import (
    Exchange,
    Output,
    local_session,
    match_files,
    publish_partitions,
    route,
    unpack,
)

PARTITIONS: Final = (2, 8)
FILES_A_BATCH: Final = 4
FILE_ROWS = 25_000
"""Small, so that even an engine that is given few messages has whole files of them."""


def start(cores: int | None, **conf: str) -> SparkSession:
    """Start Spark on this machine. Its workers find the functions of this checkout that engines send them."""
    return local_session(
        "selectroute bench",
        cores,
        log_level="OFF",
        **{"spark.executorEnv.PYTHONPATH": str(ROOT), **conf},
    )


@dataclass(frozen=True, slots=True)
class Source:
    """Where the messages of a size are: in a file those that are checked, in files of 25,000 those that are
    timed.
    """

    spark: SparkSession
    checked: Path
    paths: Sequence[Path]
    columns: Sequence[str]
    """What decides: the columns that are read."""


def write_files(folder: Path, make: Callable[[int, int], pa.RecordBatch], count: int) -> list[Path]:
    """Write ``count`` messages, in files; ``make`` gives so many from a place on."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:04d}.parquet" for number in range(_files(count))]
    for number, path in enumerate(paths):
        pq.write_table(with_body(make(FILE_ROWS, number * FILE_ROWS)), path)
    return paths


def _files(count: int) -> int:
    """Return how many files hold so many messages. Without a file, Spark would fail far from here."""
    files, rest = divmod(count, FILE_ROWS)
    if rest or not files:
        raise ValueError(f"{count:,} messages are not whole files of {FILE_ROWS:,}")
    return files


def write_checked(folder: Path, size: Size) -> Path:
    """Write the messages that the counts of a size are for."""
    path = folder / "checked.parquet"
    pq.write_table(with_body(WORKLOADS[size.workload].messages(size.rules, size.checked, 0)), path)
    return path


class SparkEngine(Engine):
    """An engine that turns files of messages into a DataFrame of matches, written to a sink that does
    nothing.
    """

    name = ""

    def __init__(self, source: Source, count: int) -> None:
        self.messages = count
        self.source = source
        self.paths = source.paths[: _files(count)]

    @abstractmethod
    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """Return the matches of the messages in some files."""

    @abstractmethod
    def count(self, matches: DataFrame) -> Expected:
        """Count what `matches` returned."""

    def judge(self) -> Expected:
        """See `bench.engine.Engine`."""
        return self.count(self.matches([self.source.checked]))

    def run(self) -> None:
        """See `bench.engine.Engine`."""
        self.matches(self.paths).write.format("noop").mode("overwrite").save()

    def read(self, paths: Sequence[Path]) -> DataFrame:
        """The columns that decide."""
        return self.source.spark.read.parquet(*map(str, paths)).select(*self.source.columns)


class Join(SparkEngine):
    """Messages joined with the broadcast rules, one row a match."""

    name = "join"

    def __init__(self, source: Source, count: int, rules: Triples) -> None:
        super().__init__(source, count)
        table = pa.table(
            {
                "JMSType": pa.array([f"t{number}" for number in rules.type.tolist()]),
                "color": pa.array([f"c{number}" for number in rules.color.tolist()]),
                "above": pa.array(rules.weight, pa.int32()),
                "rule": pa.array(np.arange(len(rules)), pa.int32()),
            }
        )
        path = source.checked.parent / "rules.parquet"
        pq.write_table(table, path)
        self._rules = source.spark.read.parquet(str(path))

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

    def __init__(self, source: Source, count: int, rules: Triples) -> None:
        super().__init__(source, count)
        each = (f"CASE WHEN {text} THEN {rule} END" for rule, text in enumerate(selectors(rules)))
        self._all = f"array_compact(array({', '.join(each)})) AS rules"

    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """See `SparkEngine`."""
        return self.read(paths).selectExpr(self._all)

    def count(self, matches: DataFrame) -> Expected:
        """See `SparkEngine`."""
        return _expected(matches.select(F.explode("rules").alias("rule")).agg(F.count("rule"), F.sum("rule")))


class _Ordinals(SparkEngine):
    """Engines whose result is a column ``subscriptions`` of ordinals."""

    def __init__(self, source: Source, count: int, built: Built, output: Output = "array") -> None:
        super().__init__(source, count)
        self.snapshot = built.snapshot
        self._built = built
        self._output: Output = output

    def count(self, matches: DataFrame) -> Expected:
        """See `SparkEngine`."""
        packed = isinstance(matches.schema["subscriptions"].dataType, BinaryType)
        lists = unpack(F.col("subscriptions")) if packed else F.col("subscriptions")
        each = matches.select(F.explode(lists).alias("ordinal")).toArrow()["ordinal"].to_numpy()
        return Expected(len(each), int(self._built.rule_numbers[each].sum()))


class Routing(_Ordinals):
    """Engines that route a DataFrame."""

    @abstractmethod
    def routed(self, messages: DataFrame) -> DataFrame:
        """Return the matches of a frame, or of a stream."""

    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """See `SparkEngine`."""
        return self.routed(self.read(paths))


class Route(Routing):
    """`selectroute.spark.frames.route` on the DataFrame."""

    def __init__(self, source: Source, count: int, built: Built, output: Output = "array") -> None:
        super().__init__(source, count, built, output)
        self.name = "route" if output == "array" else f"route-{output}"

    def routed(self, messages: DataFrame) -> DataFrame:
        """See `Routing`."""
        return route(messages, self.snapshot, output=self._output).select("subscriptions")


class Partitions(Routing):
    """`route` against the same rules in partitions, which are written when the engine is made; ``exchanged``
    sends the messages to them.
    """

    def __init__(self, source: Source, count: int, built: Built, partitions: int, exchanged: bool) -> None:
        super().__init__(source, count, built)
        self.name = f"exchanged-{partitions}" if exchanged else f"partitions-{partitions}"
        self._exchange: Exchange = "always" if exchanged else "auto"
        folder = mkdtemp(prefix=self.name, dir=source.checked.parent)
        self._parts = publish_partitions(built.snapshot, folder, partitions)
        self.bytes_a_rule = sum(self._parts.bytes) / len(self._parts)

    def routed(self, messages: DataFrame) -> DataFrame:
        """See `Routing`."""
        return route(messages, self._parts, exchange=self._exchange).select("subscriptions")


class Stream(Engine):
    """What another engine does with a frame, as a streaming query: it reads the files, `FILES_A_BATCH` in a
    batch, until all are read. Each batch goes to a sink that does nothing.
    """

    def __init__(self, like: Routing) -> None:
        self.name = f"stream-{like.name}"
        self.messages = self.must_find = like.messages
        self._like = like
        self._home = Path(mkdtemp(prefix=self.name, dir=like.source.checked.parent))

    def judge(self) -> Expected:
        """See `bench.engine.Engine`."""
        found: list[Expected] = []
        writer = self._stream([self._like.source.checked]).writeStream
        writer = writer.foreachBatch(lambda frame, _: found.append(self._like.count(frame)))
        self._ended(writer)
        [counted] = found
        return counted

    def run(self) -> int:
        """See `bench.engine.Engine`. Returns how many messages the query has read."""
        progress = self._ended(self._stream(self._like.paths).writeStream.format("noop"))
        return sum(int(one.numInputRows) for one in progress)

    def _stream(self, paths: Sequence[Path]) -> DataFrame:
        folder = self._home / f"in-{len(paths)}-{paths[0].stem}"
        if not folder.exists():  # a stream reads a folder, of which these may be a part
            folder.mkdir()
            for path in paths:
                (folder / path.name).hardlink_to(path)
        source = self._like.source
        spark = source.spark
        schema = spark.read.parquet(str(paths[0])).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_A_BATCH)
        return self._like.routed(reader.parquet(str(folder)).select(*source.columns))

    def _ended(self, writer: DataStreamWriter) -> Sequence[StreamingQueryProgress]:
        checkpoint = mkdtemp(prefix="checkpoint", dir=self._home)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return query.recentProgress


class Files(_Ordinals):
    """The fan-out's reading path: the workers read the files."""

    def __init__(self, source: Source, count: int, built: Built, output: Output = "array") -> None:
        super().__init__(source, count, built, output)
        self.name = "files" if output == "array" else f"files-{output}"

    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """See `SparkEngine`."""
        return match_files(self.source.spark, list(paths), self.snapshot, place=False, output=self._output)


class NoOp(SparkEngine):
    """An `arrow_udf` of the same columns that does nothing: ints out, or arrays as long as the true
    matches, whose elements may be NULL to Spark or may not.
    """

    def __init__(self, source: Source, count: int, name: str, lengths: Ints | None, check: Expected) -> None:
        super().__init__(source, count)
        self.name = name
        nothing: Any = _ints if lengths is None else _arrays(lengths)
        kind: Any = IntegerType()
        if lengths is not None:
            kind = ArrayType(IntegerType(), containsNull=name != "noop-no-nulls")
        self._nothing: Any = arrow_udf(nothing, kind)
        self._check = check

    def matches(self, paths: Sequence[Path]) -> DataFrame:
        """See `SparkEngine`."""
        return self.read(paths).select(self._nothing(*self.source.columns).alias("nothing"))

    def count(self, matches: DataFrame) -> Expected:
        """It matches nothing; that every message came through is all there is to check."""
        came, checked = matches.count(), pq.read_metadata(self.source.checked).num_rows
        return self._check if came == checked else Expected(-1, -1)


def _ints(types: pa.Array, _colors: pa.Array, _weights: pa.Array) -> pa.Array:
    return pa.array(np.zeros(len(types), np.int32))


def _arrays(lengths: Ints) -> Callable[..., Any]:
    """Return the no-op whose arrays have the lengths of the workload's first messages, again and again."""

    def arrays(types: pa.Array, _colors: pa.Array, _weights: pa.Array) -> pa.Array:
        offsets = np.zeros(len(types) + 1, np.int32)
        np.cumsum(np.resize(lengths, len(types)), out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.zeros(offsets[-1], np.int32)))

    return arrays


def engines(source: Source, size: Size, built: Built) -> dict[str, Callable[[int], Engine]]:
    """Return how to make each engine for a number of messages."""
    made: dict[str, Callable[[int], Engine]] = {
        "route": lambda count: Route(source, count, built),
        "route-auto": lambda count: Route(source, count, built, "auto"),
        "files": lambda count: Files(source, count, built),
        "files-auto": lambda count: Files(source, count, built, "auto"),
    }

    def in_partitions(partitions: int, exchanged: bool) -> Callable[[int], SparkEngine]:
        return lambda count: Partitions(source, count, built, partitions, exchanged)

    made |= {f"partitions-{number}": in_partitions(number, False) for number in PARTITIONS}
    made |= {f"exchanged-{number}": in_partitions(number, True) for number in PARTITIONS}

    def streamed(name: str) -> Callable[[int], Engine]:
        return lambda count: Stream(cast(Routing, made[name](count)))

    made |= {
        f"stream-{name}": streamed(name) for name in ("route", "partitions-2", "partitions-8", "exchanged-2")
    }
    workload = WORKLOADS[size.workload]
    if workload.triples is not None:
        rules = workload.triples(size.rules)
        lengths = Oracle(rules).lengths(messages(FILE_ROWS)[0])

        def no_op(name: str, of: Ints | None) -> Callable[[int], SparkEngine]:
            return lambda count: NoOp(source, count, name, of, size.check)

        made |= {
            "join": lambda count: Join(source, count, rules),
            "when": lambda count: When(source, count, rules),
            "noop-int": no_op("noop-int", None),
            "noop-array": no_op("noop-array", lengths),
            "noop-no-nulls": no_op("noop-no-nulls", lengths),
        }
    return made


def _expected(row: DataFrame) -> Expected:
    [[count, total]] = row.collect()
    return Expected(int(count), int(total or 0))
