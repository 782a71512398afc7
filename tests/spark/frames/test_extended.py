"""EXTENDED subscriptions in `route`, `deliveries` and `match_files`: left out with a warning, or judged."""

import warnings

import pytest

pytest.importorskip("pyspark")

import selectroute as sr
from selectroute.spark import deliveries, match_files, route
from tests.spark.providers import installed_in_workers

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = [("red", 1, "cars/eu"), ("red", None, "bikes"), (None, 2, "cars/us")]
SCHEMA = "color string, weight int, `@topic` string"


@pytest.fixture
def index():
    made = sr.Index()
    made.add("red", "color = 'red'")
    made.add("extended", "has weight", dialect="ibm-mq", extended=True)
    made.add("cars", "has color", topic="cars/+", dialect="ibm-mq", extended=True)
    made.add("fails", "fail color", dialect="ibm-mq", extended=True)
    return made


def named(snapshot, rows):
    return [{snapshot.ids[ordinal].as_py() for ordinal in row.subscriptions} for row in rows]


def test_without_a_provider_they_are_left_out_with_one_warning_a_call(spark, index, tmp_path):
    snapshot, df = index.freeze(), spark.createDataFrame(ROWS, SCHEMA)
    with pytest.warns(UserWarning, match=r"3 of the subscriptions are EXTENDED .* 2551") as warned:
        routed = route(df, snapshot)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert named(snapshot, routed.collect()) == [{"red"}, {"red"}, set()]
    with pytest.warns(UserWarning, match="2551") as warned:
        spelled = deliveries(df, snapshot)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert [row.subscription for row in spelled.collect()] == ["red", "red"]
    df.coalesce(1).write.parquet(str(tmp_path / "in"))
    with pytest.warns(UserWarning, match="2551"):
        rows = match_files(spark, sorted((tmp_path / "in").glob("*.parquet")), snapshot)
    assert named(snapshot, rows.collect()) == [{"red"}, {"red"}, set()]
    for name in ("extended", "cars", "fails"):
        index.remove(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        route(df, index.freeze())


def test_with_a_provider_they_are_judged_in_the_workers(spark, index, tmp_path):
    with installed_in_workers(spark, tmp_path / "provider"), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        snapshot, df = index.freeze(), spark.createDataFrame(ROWS, SCHEMA)
        expected = [{"red", "extended", "cars"}, {"red"}, {"extended"}]
        assert named(snapshot, route(df, snapshot).collect()) == expected
        spelled = [row.subscription for row in deliveries(df, snapshot).collect()]
        assert sorted(spelled) == ["cars", "extended", "extended", "red", "red"]
