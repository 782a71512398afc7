"""Spark data sources that only plan offsets; the tasks of a batch read the data.

Spark asks a planner, in a process of its own, for the end of the next batch, and writes it to its checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

PATIENCE_SECONDS: Final = 120.0
"""How long a job that ends with the available input waits for what does not answer."""

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


def planned_stream(spark: SparkSession, format_name: str, planner_of: partial[Any]) -> DataFrame:
    """Return a stream without rows, of one column, whose batches a planner plans.

    Args:
        spark: the session.
        format_name: the name of the stream's format.
        planner_of: creates the planner, in a process of its own; it is pickled.
    """

    class PlanningSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> str:
            return "number long"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            planner: DataSourceStreamReader = planner_of()
            return planner

    spark.dataSource.register(PlanningSource)
    return spark.readStream.format(format_name).load()


class Planner(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Planner of one stream, without rows. Spark calls it from one thread."""

    def __init__(self) -> None:
        self.outage: Exception | None = None
        """Error of the last question; None if it was answered."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return none: the tasks of a batch read its input."""
        return []

    def read(self, partition: InputPartition) -> Any:
        """Return no rows."""
        return iter(())

    def asked(
        self,
        ask: Callable[[], Answer],
        errors: tuple[type[Exception], ...],
        seconds: float,
        pause_seconds: float,
    ) -> Answer | None:
        """Return the answer of the source's system; None if it did not answer in time, with the reason in
        `outage`. An outage is warned of once.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                answer = ask()
            except errors as error:
                if self.outage is None:
                    _log.warning("selectroute: %s: the stream waits", error)
                self.outage = error
                if time.monotonic() >= deadline:
                    return None
                time.sleep(pause_seconds)
            else:
                self.outage = None
                return answer
