from __future__ import annotations

import random

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from selectroute.kafka.batches.partitioner import key_hashes
from selectroute.spark.runtime.jars import ConnectorError, require_connector
from tests.support.components import missing


@pytest.mark.spark
def test_any_key_has_the_hash_that_the_client_of_spark_gives_it(spark):
    try:
        require_connector(spark)
    except ConnectorError as error:
        missing(str(error))
    chance = random.Random(7)
    keys = [chance.randbytes(chance.randrange(40)) for _ in range(200)]
    murmur2 = spark.sparkContext._jvm.org.apache.kafka.common.utils.Utils.murmur2
    found = key_hashes(pa.array(keys, pa.binary()))
    assert found.to_pylist() == [murmur2(bytearray(key)) & 0x7FFFFFFF for key in keys]
