"""A short storm of changes; ``python -m tests.crash.programs.streams.storm`` is the long one."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
@pytest.mark.spark
def test_every_delivery_of_a_storm_is_the_references_under_the_revision_of_its_batch(tmp_path, table_format):
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")
    from tests.crash.programs.streams.storm import Storm

    storm = Storm(tmp_path, seed=2, changes=60, messages=12_000, files=6, kills=1, table_format=table_format)
    tally = storm.run()
    assert tally.messages == 14_000 and tally.batches == 7
    assert tally.deliveries > 1_000 and tally.revisions > 2 and tally.cutoffs > 60
