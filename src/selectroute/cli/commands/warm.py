"""``selectroute warm``: compiles the matching kernel ahead of time."""

from __future__ import annotations

import importlib.util

from selectroute.cli.output import Output, OutputOption, print_result


def warm(output: OutputOption = Output.table) -> None:
    """Compile the matching kernel ahead of time, for this user and machine: about a minute once.

    Otherwise the first match compiles, with one line of output. For a container image, run this during the
    build, as the user of the service. The code is stored in NUMBA_CACHE_DIR, XDG_CACHE_HOME, ~/.cache or the
    temporary folder: the first that can be used. Another version of selectroute or kind of processor needs a
    new compilation.

    RUN NUMBA_CACHE_DIR=/opt/kernel selectroute warm
    """
    from selectroute.index.warm import warm as warm_kernel

    done = warm_kernel()
    if importlib.util.find_spec("pyspark") is not None:
        _warm_spark()
    if importlib.util.find_spec("google_crc32c") is not None:  # of the extra `kafka`
        _warm_kafka()
    folder = None if done.folder is None else str(done.folder)
    data = {"folder": folder, "seconds": round(done.seconds, 3), "compiled": done.compiled}
    print_result(output, str(done), data)


def _warm_spark() -> None:
    """Compile the functions for routing in partitions, in some seconds."""
    import numpy as np
    import pyarrow as pa

    from selectroute.match.columns.batch import ColumnBatch
    from selectroute.match.encoding.lanes import AttributeLanes
    from selectroute.spark.partitions.keys import MessageKeys
    from selectroute.spark.partitions.steps import Lists, merge

    MessageKeys(AttributeLanes(ColumnBatch(pa.record_batch({"name": ["value"]})))).of(("name",))
    counts, ordinals = np.ones(1, np.int64), np.zeros(1, np.int32)
    merge(2, [Lists(counts, np.arange(2), ordinals, ordinals)], marked=True)


def _warm_kafka() -> None:
    """Compile the functions for record batches, in some seconds."""
    import numpy as np
    import pyarrow as pa

    from selectroute.kafka.batches.decode import HEADERS, decode
    from selectroute.kafka.batches.encode import encode, key_hashes

    key_hashes(pa.array([b"key"]))
    record = pa.RecordBatch.from_arrays(
        [pa.array([b"key"]), pa.array([b"value"]), pa.array([[{"key": "name", "value": b"text"}]], HEADERS)],
        names=["key", "value", "headers"],
    )
    own = {"own": (b"text", pa.array([1]), pa.array(["text"]))}
    (batch,) = encode(record, np.zeros(1, np.int64), 0, own)
    list(decode(batch.data, "topic", 0, 0))
