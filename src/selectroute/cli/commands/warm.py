"""``selectroute warm``: the matching kernel compiled ahead."""

from __future__ import annotations

import importlib.util
import json

from selectroute.cli.output import Output, OutputOption


def warm(output: OutputOption = Output.table) -> None:
    """Compile the matching kernel ahead, for this user and machine: about half a minute once.

    Without it the first match does so, in silence but for one line. For an image of a container, run it while
    the image is built, as the user who will match. The code is kept below NUMBA_CACHE_DIR, or else
    XDG_CACHE_HOME, or else ~/.cache; it is compiled anew for another version of selectroute or kind of
    processor.

    RUN NUMBA_CACHE_DIR=/opt/kernel selectroute warm
    """
    from selectroute.index.warm import warm as warm_kernel

    done = warm_kernel()
    if importlib.util.find_spec("pyspark") is not None:
        _warm_spark()
    if output is Output.table:
        print(done)
        return
    print(
        json.dumps(
            {
                "folder": None if done.folder is None else str(done.folder),
                "seconds": round(done.seconds, 3),
                "compiled": done.compiled,
            }
        )
    )


def _warm_spark() -> None:
    """Compile what routing in partitions and sending to Kafka need besides, a second or two."""
    import pyarrow as pa

    from selectroute.spark.destinations.kafka_records import key_hashes
    from selectroute.spark.partitions.keys import MessageKeys

    key_hashes(pa.array([b"key"]))
    MessageKeys(pa.record_batch({"name": ["value"]})).of(("name",))
