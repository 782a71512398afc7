import pyarrow as pa
import pyarrow.compute as pc
import pytest

from selectroute.demo.data import FLIGHTS, read_flights, sample, to_messages, write_messages


@pytest.fixture(scope="module")
def flights():
    return read_flights()


@pytest.fixture(scope="module")
def messages(flights):
    return to_messages(flights)


def test_every_flight_becomes_one_message(messages):
    assert messages.num_rows == FLIGHTS
    assert pc.count_distinct(messages["JMSMessageID"]).as_py() == FLIGHTS


def test_unknown_values_stay_null(messages):
    # The figures of the data set itself: cancelled flights have no departure, 2,512 planes are unknown.
    nulls = {name: messages[name].null_count for name in messages.column_names}
    expected = {"dep_time": 8255, "dep_delay": 8255, "arr_delay": 9430, "air_time": 9430, "tailnum": 2512}
    assert {name: nulls[name] for name in expected} == expected
    assert nulls["JMSCorrelationID"] == 2512
    assert "NA" not in pc.unique(messages["tailnum"]).to_pylist()


def test_columns_have_the_types_of_the_properties(messages):
    types = {"JMSPriority": pa.int32(), "JMSTimestamp": pa.int64(), "flight": pa.int32()}
    types |= {"dep_delay": pa.int16(), "month": pa.int8(), "carrier": pa.string(), "@topic": pa.string()}
    assert {name: messages.schema.field(name).type for name in types} == types


def test_first_flight_reads_as_it_was_flown(messages):
    first = {name: messages[name][0].as_py() for name in messages.column_names}
    assert first["JMSType"] == "arrived"
    assert first["JMSCorrelationID"] == first["tailnum"] == "N14228"
    assert first["JMSMessageID"] == "ID:414d5120464c494748545332303133200000000000000000"
    assert first["JMSTimestamp"] == 1_357_034_400_000  # 2013-01-01T10:00:00Z, five in the morning in New York
    assert first["@topic"] == "flights/EWR/IAH"
    assert (first["carrier"], first["flight"], first["dep_delay"], first["arr_delay"]) == ("UA", 1545, 2, 11)


def test_type_and_priority_say_what_became_of_the_flight(messages):
    kinds = dict(zip(*pc.value_counts(messages["JMSType"]).flatten(), strict=True))
    counts = {"arrived": 247_246, "delayed": 80_100, "diverted": 1_175, "cancelled": 8_255}
    assert {kind.as_py(): count.as_py() for kind, count in kinds.items()} == counts
    assert pc.min_max(messages["JMSPriority"]).as_py() == {"min": 4, "max": 9}


def test_sample_spreads_over_the_year_and_keeps_order(flights):
    some = sample(flights, 1000)
    assert some.num_rows == 1000 and set(some["month"].to_pylist()) == set(range(1, 13))
    assert sample(flights, FLIGHTS) == flights


def test_files_hold_all_messages_in_order_in_several_row_groups(messages, tmp_path):
    part = messages.slice(0, 65_003)
    paths = write_messages(part, tmp_path / "new", files=2)
    read = pa.concat_tables(pa.parquet.read_table(path) for path in paths)
    assert len(paths) == 2
    assert read["@id"].to_pylist() == part["@id"].to_pylist()
    assert pa.parquet.read_metadata(paths[0]).num_row_groups == 2
