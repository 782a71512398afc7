"""Whatever reads what users write refuses a field that it does not know, and says which was meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

import selectroute as sr
from selectroute.index.jsonl import build_from_lines
from selectroute.index.specification import Destination, SubscriptionSpec
from selectroute.kafka.binding import KafkaBinding
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import from_wire
from selectroute.service.http import models

Read = Callable[[Any], Any]


def _binding(data: Any) -> Any:
    from selectroute.spark import Binding

    return Binding.from_dict(data)


def _wanted(data: Any) -> Any:
    from selectroute.spark.replay.request import ReplayFilterSpec

    return ReplayFilterSpec.from_json({**ReplayFilterSpec().to_json(), **data})


READERS: dict[str, tuple[Read, Any, str]] = {
    "a line of subscriptions": (
        lambda row: build_from_lines([json.dumps(row)]), {"id": "a", "selektor": ""}, "selector"
    ),
    "a table of subscriptions": (
        lambda row: sr.build_snapshot(pa.Table.from_pylist([row])), {"id": "a", "selektor": ""}, "selector"
    ),
    "a subscription": (SubscriptionSpec.from_json, {"selector": "x = 1", "lables": {}}, "labels"),
    "a destination": (Destination.from_json, {"kind": "queue", "nmae": "A"}, "name"),
    "a destination of a line": (
        lambda row: build_from_lines([json.dumps(row)]), {"id": "a", "destination": {"knd": "none"}}, "kind"
    ),
    "a message": (sr.Message.from_json, {"propertys": {}}, "properties"),
    "a typed value": (lambda data: from_wire("x", data), {"type": "int", "valeu": 3}, "value"),
    "a body": (sr.Message.from_json, {"body": {"type": "bytes", "vlaue": "00"}}, "value"),
    "a Kafka binding": (KafkaBinding.from_dict, {"field": {}}, "fields"),
    "a field of a Kafka binding": (KafkaBinding.from_dict, {"fields": {"a": {"typ": "int"}}}, "type"),
    "a binding of columns": (_binding, {"colums": {}}, "columns"),
    "a request for a replay": (_wanted, {"batchs": [1]}, "batches"),
    **{
        f"the body {model.__name__}": (model.model_validate, {misspelt: None}, meant)
        for model, misspelt, meant in (
            (models.SubscriptionBody, "selektor", "selector"),
            (models.DestinationBody, "nmae", "name"),
            (models.ResumeBody, "form", "from"),
            (models.OperationBody, "expectd", "expected"),
            (models.CheckBody, "dialekt", "dialect"),
            (models.MatchBody, "limits", "limit"),
            (models.ExplainBody, "subscription", "subscriptions"),
            (models.TokenBody, "topic", "topics"),
            (models.QueryBody, "sourc", "source"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_a_misspelt_field_is_refused_with_the_one_that_was_meant(name: str) -> None:
    read, data, meant = READERS[name]
    with pytest.raises((SelectRouteError, ValidationError), match=f"did you mean `{meant}`"):
        read(data)


def test_what_a_registry_exports_is_read_everywhere() -> None:
    """Whoever writes a subscription back as it was read is not refused what only the registry sets."""
    exported = {
        "id": "a", "name": "a", "topic": None, "selector": "x = 1", "dialect": "jms", "seltype": "STANDARD",
        "destination": {"kind": "none"}, "status": "active", "labels": {"team": "billing"}, "revision": 7,
        "created": "2026-01-01T00:00:00.000000Z", "modified": "2026-01-01T00:00:00.000000Z",
        "effective_from": [{"query": "q", "batch": 3}],
    }  # fmt: skip
    assert len(build_from_lines([json.dumps(exported)])) == 1
    assert SubscriptionSpec.from_json(exported).selector == "x = 1"
    models.SubscriptionBody.model_validate(exported)
