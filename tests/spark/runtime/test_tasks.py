"""Tasks by their numbers, in the workers of an RDD and in those of ``mapInArrow``."""

import pytest

from selectroute.spark.session import arrow_runner_of, runner_of


@pytest.mark.parametrize("made", [runner_of, arrow_runner_of])
def test_each_task_reports_under_the_number_that_it_was_given(spark, made):
    reports = made(spark)(lambda number: {"square": number * number}, [5, 2, 9])
    found = {report["task"]: report["square"] for report in reports}
    assert found == {5: 25, 2: 4, 9: 81}
