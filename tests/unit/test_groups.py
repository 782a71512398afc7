"""Tests that share a component run in one worker: with `-n`, groups are taken together."""

import os

import pytest

pytestmark = pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" not in os.environ, reason="there are groups with -n only"
)


@pytest.mark.xdist_group("groups")
def test_a_group_is_known_to_who_hands_out_the_tests(request):
    assert request.node.nodeid.endswith("@groups")


@pytest.mark.spark
def test_those_of_spark_are_a_group(request):
    assert request.node.nodeid.endswith("@spark")
