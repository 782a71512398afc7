"""Spark with its Delta connector, for tests: a release of Spark that has one, in a process of its own.

The connector of Delta 4.4.0, the newest, is built for Spark 4.2 and earlier. On Spark 4.3 each read of a
table fails, because it calls a constructor of ``LogicalRDD`` that 4.3 no longer has
(``NoSuchMethodError``). So PySpark 4.2.0 is installed beside the one that all other tests use, and comes
before it on the path of the process.

``python -m tests.support.servers.delta_connector STEP FOLDER`` is that process; what it saw is a line of
JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.components import missing
from tests.support.servers.object_stores import installed

SPARK = "4.2.0"
DELTA = "4.4.0"
KILLED = 9
"""Exit code of a process that ends itself in the middle of a batch."""

_ROOT = Path(__file__).parents[3]


def pyspark() -> Path:
    """The folder for PYTHONPATH that has the PySpark of the connector."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", f"pyspark=={SPARK}"]
    version = installed(
        f"pyspark-{SPARK}", "pyspark/version.py", lambda folder: [*pip, "--target", str(folder)]
    )
    return version.parents[1]


def in_spark(step: str, folder: Path, code: int = 0) -> Any:
    """Run a step in that Spark, and return what it saw.

    Raises AssertionError unless it ends with this code.
    """
    path = os.pathsep.join(map(str, (pyspark(), _ROOT / "src", _ROOT)))
    command = [sys.executable, "-m", "tests.support.servers.delta_connector", step, str(folder)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if lines and lines[-1].startswith("missing: "):
        missing(lines[-1].removeprefix("missing: "))
    assert done.returncode == code, done.stderr[-3_000:]
    return json.loads(lines[-1]) if code == 0 else None


def _session() -> Any:
    """Return a session with the connector."""
    from selectroute.spark import JavaError, local_session
    from selectroute.testing.jars import JarError, Module, fetch, spark_jars

    try:
        module = Module("io.delta", f"delta-spark_{SPARK.rpartition('.')[0]}_2.13", DELTA)
        jars = fetch(f"delta-connector-{SPARK}-{DELTA}", [module], transitive=True)
    except (JarError, JavaError) as error:
        print(f"missing: Spark's Delta connector: {error}")
        sys.exit(1)
    shipped = {_name(jar) for jar in spark_jars().glob("*.jar")}
    conf = {
        "spark.jars": ",".join(str(jar) for jar in jars if _name(jar) not in shipped),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    session = local_session("delta", 2, log_level="OFF", **conf)
    assert session.version == SPARK, session.version
    return session


def _name(jar: Path) -> str:
    return jar.stem.rpartition("-")[0]


# ---- what is done in that process


def read(session: Any, folder: Path) -> Mapping[str, Any]:
    """Read the table of a job: as a batch, as it was, in SQL and as a stream."""
    table = str(folder)
    frames = {
        "now": session.read.format("delta").load(table),
        "first": session.read.format("delta").option("versionAsOf", 1).load(table),
        "sql": session.sql(f"SELECT * FROM delta.`{table}` WHERE batch = 1"),
    }
    query = (
        session.readStream.format("delta")
        .load(table)
        .writeStream.format("memory")
        .queryName("streamed")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    frames["streamed"] = session.table("streamed")
    schema = {field.name: field.dataType.simpleString() for field in frames["now"].schema.fields}
    columns = ("batch", "source", "offset", "subscription", "revision")
    rows = {name: sorted([*row] for row in one.select(*columns).collect()) for name, one in frames.items()}
    return {"schema": schema, **rows}


def route(session: Any, folder: Path, kill: str = "") -> Mapping[str, Any]:
    """Route the rows that were appended to a table, two of its transactions in a batch at most."""
    from selectroute.spark import Position, start_fanout
    from selectroute.spark.batch.commits import Commits

    reports = []

    def noted(report: Any) -> None:
        reports.append(report)
        if kill == "committed" and report.batch == 1:
            os._exit(KILLED)

    if kill == "staged":
        commit = Commits.commit

        def killed(self: Commits, content: Mapping[str, Any]) -> None:
            if content["batch"] == 3:
                os._exit(KILLED)
            commit(self, content)

        Commits.commit = killed  # type: ignore[method-assign]
    start_fanout(
        frame=session.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(folder / "table")),
        name="readings",
        position=Position(offset="id"),
        snapshots=str(folder / "snapshots"),
        output=str(folder / "out"),
        table_format="delta",
        available_now=True,
        on_batch=noted,
    ).wait()
    return {"batches": [report.batch for report in reports]}


def main(step: str, folder: Path) -> None:
    """Do a step, and print what was seen."""
    session = _session()
    name, _, kill = step.partition(":")
    seen = read(session, folder) if name == "read" else route(session, folder, kill)
    session.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
