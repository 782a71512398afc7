"""Requests to replay dead letters, as `selectroute dead-letter replay` writes them."""

from __future__ import annotations

from dataclasses import replace

from selectroute.spark.replay.letters import count_left
from selectroute.spark.replay.request import ReplayFilterSpec, Request, as_of_now, write_request
from selectroute.storage.location import Where


def make_request(output: Where, wanted: ReplayFilterSpec) -> Request:
    """Write a request to replay dead letters."""
    request = as_of_now(output, wanted)
    request = replace(request, letters=count_left(output, request).total())
    write_request(output, request)
    return request
