"""An archive of the classes that Spark loads: a Java that maps it starts with half of the processor time.

``python -m tests.support.java_classes FILE`` writes it, unless it is there. Another Java, or one with other
jars, sees that the archive is not its own, and does without (JEP 350).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
from pyspark import SparkContext

from selectroute.spark import local_session
from selectroute.spark.session import SHORT_LIVED, find_java


def write(archive: Path) -> None:
    """Start a session, and have its Java write what it has loaded; a file beside names that Java."""
    owner, java = archive.with_suffix(".java"), f"{find_java()}, Spark {pyspark.__version__}\n"
    if archive.exists() and owner.exists() and owner.read_text() == java:
        return
    part = archive.with_suffix(f".{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
        [*SHORT_LIVED, f"-XX:ArchiveClassesAtExit={part}", "-Xlog:disable"]
    )
    session = local_session("classes", cores=2)
    session.range(3).collect()
    gateway = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    if part.exists():  # not from the Java of a wheel, which has no archive of its own classes to add to
        part.replace(archive)
        owner.write_text(java)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
