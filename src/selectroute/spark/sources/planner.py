"""Sources of Spark's streams that plan batches, and leave the reading to the tasks of a batch.

Spark asks a planner, in a process of its own, for the end of the next batch, and writes it to its checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

PATIENCE_SECONDS: Final = 120.0
"""How long a job that ends with the available input waits for what does not answer."""

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


def planning_source(name: str, schema: str, planner_of: partial[Any]) -> type[DataSource]:
    """Return a source to be registered; it travels to Spark's processes by value.

    Args:
        name: the name of its format.
        schema: the columns of its stream, which has no rows.
        planner_of: creates the planner.
    """
    members = {"format": name, "columns": schema, "planner_of": staticmethod(planner_of)}
    return type("PlanningSource", (_PlanningSource,), members)


class _PlanningSource(DataSource):
    format: ClassVar[str]
    columns: ClassVar[str]
    planner_of: ClassVar[partial[Any]]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return cls.format

    def schema(self) -> str:
        return self.columns

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        planner: DataSourceStreamReader = self.planner_of()
        return planner


class Planner(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Planner of one stream, without rows. Spark calls it from one thread."""

    def __init__(self) -> None:
        self.outage: Exception | None = None
        """Error of the question that was not answered last; None if it was answered."""

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
        """Return the answer of what is planned from; None if none came in so many seconds, with the reason in
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
