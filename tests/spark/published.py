"""Published files of a job, changed as if they had come out so."""

import pyarrow as pa
import pyarrow.parquet as pq

from selectroute.storage import Location


def republished(world, sink, change):
    """Change what batch 0 has published in a sink by a function of its table, and forget the digests."""
    path = Location.of(world.output / "_commits" / "0.json")
    commit = path.read_json()
    file = next(file for file in commit["files"] if file["path"].startswith(sink))
    published = Location.of(world.output / file["path"])
    changed = pa.BufferOutputStream()
    pq.write_table(change(pq.ParquetFile(pa.BufferReader(published.read())).read()), changed)
    published.put(changed.getvalue().to_pybytes())
    path.put_json(commit | {"files": [one | {"sha256": "0" * 64} for one in commit["files"]]})
