"""Texts of the OpenAPI document that are not in the code of the calls: summaries and examples."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from selectroute.service.http.middleware import MESSAGING

JSON: Final = "application/json"

_QUEUE: Final = MESSAGING + "queue/{queue}"
_TOPIC: Final = MESSAGING + "topic/{topic}"

_BODIES: Final = {
    "text/plain": "shipped",
    JSON: '{"order": 7}',
    "application/octet-stream": "any bytes",
}

SUMMARIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "GET /v1/subscriptions": "List subscriptions",
        "POST /v1/subscriptions": "Register a subscription",
        "GET /v1/subscriptions:search": "List the subscriptions that a search finds",
        "POST /v1/subscriptions:batch": "Change several subscriptions at one revision",
        "POST /v1/subscriptions:import": "Import subscriptions",
        "GET /v1/subscriptions:export": "Export all subscriptions",
        "GET /v1/subscriptions/{id}": "Read a subscription",
        "PUT /v1/subscriptions/{id}": "Replace a subscription, or register one under this id",
        "PATCH /v1/subscriptions/{id}": "Change fields of a subscription",
        "DELETE /v1/subscriptions/{id}": "Remove a subscription",
        "POST /v1/subscriptions/{id}:pause": "Pause a subscription",
        "POST /v1/subscriptions/{id}:resume": "Resume a subscription",
        "GET /v1/subscriptions/{id}/changes": "Read the history of a subscription",
        "GET /v1/subscriptions/{id}/activity": "Show the last deliveries of a subscription",
        "GET /v1/subscriptions:activity": "Show the last deliveries of several subscriptions",
        "POST /v1/subscriptions:dry-run": "Show which recent messages a change gains or loses",
        "POST /v1/selectors:check": "Check a selector",
        "POST /v1/messages:match": "Match a message",
        "POST /v1/messages:explain": "Explain why subscriptions get a message or do not",
        "GET /v1/changes": "Read the change log, or wait for a change",
        "GET /v1/queries": "List the queries that read this registry",
        "POST /v1/queries/{query}": "Announce a query",
        "POST /v1/queries/{query}/batches": "Report the revision that a batch used",
        "POST /v1/queries/{query}/reports": "Report batches of a stream, or a sign of life",
        "GET /v1/queries/{query}/reports": "Read the newest batches of a stream",
        "POST /v1/queries/{query}/messages": "Report some messages, for the sample of recent ones",
        "GET /v1/messages": "List the newest messages of the sample",
        "GET /v1/messages/identifiers": "List the identifiers in recent messages",
        "GET /v1/streams": "List the streams that have reported",
        "DELETE /v1/streams/{query}": "Remove a stream that has ended or vanished",
        "GET /v1/health": "Check the registry and its streams",
        "GET /v1/jobs": "List the jobs whose dead letters are shown",
        "GET /v1/jobs/{job}/dead-letters": "List dead letters of a job",
        "GET /v1/jobs/{job}/dead-letters:bytes": "Read the bytes of a dead letter",
        "POST /v1/jobs/{job}/dead-letters:preview": "Show what a replay would do",
        "POST /v1/jobs/{job}/replays": "Replay dead letters",
        "GET /v1/jobs/{job}/replays/{request}": "Show whether a replay is done",
        "POST /v1/jobs/{job}/audits": "Check the accounts of a job",
        "GET /v1/tokens": "List tokens",
        "POST /v1/tokens": "Create a token",
        "DELETE /v1/tokens/{token}": "Revoke a token",
        "GET /v1/caller": "Show whose token is sent",
        "GET /v1/limits": "Show the limits of requests",
        "GET /metrics": "Show metrics for Prometheus",
        "GET /healthz": "Check that the process is alive",
        "GET /readyz": "Check that the registry is readable and published",
        f"POST {_QUEUE}/message": "Put a message on a queue",
        f"POST {_TOPIC}/message": "Put a message on the queue of each matching subscription",
        f"GET {_QUEUE}/message": "Browse the first matching message",
        f"DELETE {_QUEUE}/message": "Get the first matching message, which leaves the queue",
        f"GET {_QUEUE}/messagelist": "List the first matching messages",
        "GET /v1/queues": "List queues",
        "GET /v1/queues/{name}": "Describe a queue",
        "PUT /v1/queues/{name}": "Create a queue",
        "DELETE /v1/queues/{name}": "Delete a queue",
        "GET /v1/queues/{name}:count": "Show how many messages of a queue match",
        "POST /v1/queues/{name}:purge": "Remove the matching messages of a queue",
        "POST /v1/queues/{name}:move": "Put the matching messages of a queue on another one",
    }
)
"""Summary of each call, beginning with a verb."""

_MESSAGE: Final = {
    "topic": "cars/eu",
    "headers": {"JMSType": "car"},
    "properties": {"weight": {"type": "int", "value": 3000}},
}
_HEAVY: Final = {"selector": "JMSType = 'car' AND weight > 2500", "topic": "cars/+"}

EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "POST /v1/subscriptions": {JSON: {**_HEAVY, "name": "heavy cars", "labels": {"team": "eu"}}},
        "POST /v1/subscriptions:batch": {
            JSON: {
                "operations": [
                    {"op": "add", "id": "red", "selector": "color = 'red'"},
                    {"op": "pause", "id": "heavy"},
                ]
            }
        },
        "POST /v1/subscriptions:import": {
            "application/x-ndjson": '{"id": "light", "selector": "weight < 500"}\n{"id": "all"}\n'
        },
        "PUT /v1/subscriptions/{id}": {JSON: _HEAVY},
        "PATCH /v1/subscriptions/{id}": {
            "application/merge-patch+json": {"selector": "weight > 3000", "labels": {"team": None}}
        },
        "POST /v1/subscriptions/{id}:resume": {JSON: {"from": "last-processed"}},
        "POST /v1/queries/{query}/reports": {
            JSON: {
                "batches": [
                    {
                        "batch": 17,
                        "revision": 3,
                        "ended": "2026-01-31T12:00:00Z",
                        "messages": 1_000,
                        "routed": 900,
                        "unrouted": 99,
                        "dead_lettered": 1,
                        "deliveries": 4_200,
                        "seconds": {"match": 0.12, "commit": 0.004},
                        "busiest": {"heavy": 4_000, "light": 200},
                    }
                ],
                "state": {"name": "flights", "waiting": {"queue": 0}, "behind": 250},
            }
        },
        "POST /v1/queries/{query}/messages": {JSON: {"messages": [_MESSAGE]}},
        "POST /v1/subscriptions:dry-run": {JSON: {"id": "heavy", "subscription": _HEAVY}},
        "POST /v1/selectors:check": {JSON: {"selector": "color = 'red'", "dialect": "ibm-mq"}},
        "POST /v1/messages:match": {JSON: {"message": _MESSAGE, "limit": 100}},
        "POST /v1/messages:explain": {JSON: {"message": _MESSAGE, "subscriptions": ["heavy"]}},
        "POST /v1/queries/{query}": {
            JSON: {"source": "the folder /srv/messages", "can_replay": True, "reason": None}
        },
        "POST /v1/queries/{query}/batches": {JSON: {"batch": 7, "revision": 1}},
        "POST /v1/jobs/{job}/dead-letters:preview": {JSON: {"reasons": ["not-json"]}},
        "POST /v1/jobs/{job}/replays": {JSON: {"reasons": ["not-json"], "expected": 3}},
        "POST /v1/tokens": {JSON: {"role": "admin", "name": "operations"}},
        f"POST {_QUEUE}/message": _BODIES,
        f"POST {_TOPIC}/message": _BODIES,
        "PUT /v1/queues/{name}": {JSON: {"order": "fifo", "max_depth": 10_000}},
        "POST /v1/queues/{name}:purge": {JSON: {"correlationId": "order-7"}},
        "POST /v1/queues/{name}:move": {JSON: {"to": "Q", "selector": "weight > 2500"}},
    }
)
"""Example of each request body, by media type."""
