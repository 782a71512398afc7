"""Table of all calls: the routes of the service and its OpenAPI document are made from these rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from selectroute.registry.authorization.role import Role
from selectroute.service import system
from selectroute.service.http.call import JSON, Call
from selectroute.service.http.middleware import IMPORT, MESSAGING
from selectroute.service.jobs import calls as jobs
from selectroute.service.queues import administration as queues
from selectroute.service.queues import bulk as queue_bulk
from selectroute.service.queues import messages as queue_messages
from selectroute.service.queues import topics
from selectroute.service.subscriptions import bulk, changes, messages, subscriptions, tokens
from selectroute.service.subscriptions.reports import activity, samples, streams

_READER, _WRITER, _ADMIN = Role.reader, Role.writer, Role.admin

# ---- problems that several calls have

_CURSOR: Final = ("invalid-subscription", "The cursor is not one of this registry")
_SPEC: Final = ("invalid-selector", "invalid-topic-filter", "invalid-subscription")
_CHANGE: Final = ("subscription-not-found", "stale-revision", "read-only")
_REPORT: Final = ("not-found", "read-only")
_JOB: Final = ("job-not-found", "invalid-body")
_QUEUE: Final = ("queue-not-found", "queue-manager-not-found")
_PUT: Final = (
    *_QUEUE, "queue-full", "invalid-message", "message-too-large", "unsupported-media-type", "read-only"
)  # fmt: skip
_SELECT: Final = ("invalid-selector", "too-costly")
_PURGE: Final = (*_SELECT, "queue-not-found", "count-changed", "read-only")

# ---- bodies and examples that several calls have

_OCTETS: Final = "application/octet-stream"
_TEXT: Final = {"schema": {"type": "string"}}
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_BODIES: Final = {
    "text/plain": {**_BINARY, "example": "shipped"},
    JSON: {**_BINARY, "example": '{"order": 7}'},
    _OCTETS: {**_BINARY, "example": "any bytes"},
}
_FOUND: Final = {
    200: {
        "description": "The message: its body, and all other fields as headers ibm-mq-….",
        "headers": queue_messages.OMITTED_HEADER,
        "content": {"text/plain": _BINARY, _OCTETS: _BINARY},
    },
    204: "There is no matching message (2033).",
}
_MESSAGE: Final = {
    "topic": "cars/eu",
    "headers": {"JMSType": "car"},
    "properties": {"weight": {"type": "int", "value": 3000}},
}
_LINES: Final = '{"id": "light", "selector": "weight < 500"}\n{"id": "all"}\n'
_HEAVY: Final = {"selector": "JMSType = 'car' AND weight > 2500", "topic": "cars/+"}
_BATCH: Final = {
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

_S: Final = subscriptions.PATH
_ONE: Final = f"{_S}/{{id}}"
_Q: Final = f"{queues.PATH}/{{name:path}}"
_J: Final = f"{jobs.PATH}/{{job}}"
_MESSAGES: Final = MESSAGING + "queue/{queue:path}/message"

CALLS: Final[Mapping[str, Sequence[Call]]] = MappingProxyType(
    {
        "subscriptions": (
            Call("GET", _S, _READER, bulk.page, "List subscriptions", _CURSOR),
            Call(
                "GET", f"{_S}:search", _READER, bulk.searched, "List the subscriptions that a search finds",
                _CURSOR,
            ),
            Call(
                "POST", f"{_S}:batch", _WRITER, bulk.batch, "Change several subscriptions at one revision",
                *_SPEC, "too-costly", *_CHANGE, "name-taken", "id-taken", "idempotency-conflict",
                example={
                    "operations": [
                        {"op": "add", "id": "red", "selector": "color = 'red'"},
                        {"op": "pause", "id": "heavy"},
                    ]
                },
            ),
            Call(
                "POST", IMPORT, _WRITER, bulk.import_, "Import subscriptions",
                *_SPEC, "too-costly", "too-large", "unsupported-media-type", "read-only", "name-taken",
                "id-taken",
                content={bulk.NDJSON: {**_TEXT, "example": _LINES}},
            ),
            Call(
                "GET", f"{_S}:export", _READER, bulk.export, "Export all subscriptions",
                responses={
                    200: {"description": "One subscription a line.", "content": {bulk.NDJSON: _TEXT}}
                },
            ),
            Call(
                "GET", f"{_ONE}/activity", _READER, activity.activity,
                "Show the last deliveries of a subscription", "subscription-not-found",
            ),
            Call(
                "GET", f"{_S}:activity", _READER, activity.activities,
                "Show the last deliveries of several subscriptions",
            ),
            Call(
                "POST", _S, _WRITER, subscriptions.register, "Register a subscription",
                *_SPEC, "read-only", "idempotency-conflict", "name-taken",
                status=201, example={**_HEAVY, "name": "heavy cars", "labels": {"team": "eu"}},
            ),
            Call(
                "GET", _ONE, _READER, subscriptions.get, "Read a subscription", "subscription-not-found",
                responses={304: "If-None-Match names the current ETag."},
            ),
            Call(
                "PUT", _ONE, _WRITER, subscriptions.put,
                "Replace a subscription, or register one under this id",
                *_SPEC, *_CHANGE, "name-taken", "id-taken", "precondition-required",
                responses={201: "Registered.", 204: "Replaced."}, example=_HEAVY,
            ),
            Call(
                "PATCH", _ONE, _WRITER, subscriptions.patch, "Change fields of a subscription",
                *_SPEC, *_CHANGE, "name-taken", "precondition-required",
                responses={204: "Changed."}, example={"selector": "weight > 3000", "labels": {"team": None}},
            ),
            Call(
                "DELETE", _ONE, _WRITER, subscriptions.remove, "Remove a subscription",
                *_CHANGE, "precondition-required", responses={204: "Removed."},
            ),
            Call(
                "POST", f"{_ONE}:pause", _WRITER, subscriptions.pause, "Pause a subscription", *_CHANGE,
                responses={204: "Paused."},
            ),
            Call(
                "POST", f"{_ONE}:resume", _WRITER, subscriptions.resume, "Resume a subscription", *_CHANGE,
                responses={204: "Resumed."}, example={"from": "last-processed"},
            ),
        ),
        "questions": (
            Call(
                "POST", "/v1/selectors:check", _READER, messages.check, "Check a selector",
                example={"selector": "color = 'red'", "dialect": "ibm-mq"},
            ),
            Call(
                "POST", "/v1/messages:match", _READER, messages.match, "Match a message", "invalid-message",
                example={"message": _MESSAGE, "limit": 100},
            ),
            Call(
                "POST", "/v1/messages:explain", _READER, messages.explain,
                "Explain why subscriptions get a message or do not", "invalid-message",
                "subscription-not-found", example={"message": _MESSAGE, "subscriptions": ["heavy"]},
            ),
            Call(
                "POST", "/v1/queries/{query}/messages", _WRITER, samples.note,
                "Report some messages, for the sample of recent ones", *_REPORT, "invalid-message",
                status=204, example={"messages": [_MESSAGE]},
            ),
            Call("GET", "/v1/messages", _READER, samples.listed, "List the newest messages of the sample"),
            Call(
                "GET", "/v1/messages/identifiers", _READER, samples.identifiers,
                "List the identifiers in recent messages",
            ),
            Call(
                "POST", f"{_S}:dry-run", _READER, samples.dry_runs,
                "Show which recent messages a change gains or loses", *_SPEC, "subscription-not-found",
                example={"id": "heavy", "subscription": _HEAVY},
            ),
        ),
        "changes": (
            Call(
                "GET", changes.PATH, _READER, changes.changes, "Read the change log, or wait for a change",
                _CURSOR,
            ),
            Call(
                "GET", f"{_ONE}/changes", _READER, changes.history, "Read the history of a subscription",
                _CURSOR, "subscription-not-found",
            ),
            Call("GET", "/v1/queries", _WRITER, changes.queries, "List the queries that read this registry"),
            Call(
                "POST", "/v1/queries/{query}", _WRITER, changes.query, "Announce a query", *_REPORT,
                status=204,
                example={"source": "the folder /srv/messages", "can_replay": True, "reason": None},
            ),
            Call(
                "POST", "/v1/queries/{query}/batches", _WRITER, changes.batch,
                "Report the revision that a batch used", *_REPORT,
                status=204, example={"batch": 7, "revision": 1},
            ),
        ),
        "streams": (
            Call(
                "POST", "/v1/queries/{query}/reports", _WRITER, streams.report,
                "Report batches of a stream, or a sign of life", *_REPORT, status=204,
                example={
                    "batches": [_BATCH], "state": {"name": "flights", "waiting": {"queue": 0}, "behind": 250}
                },
            ),
            Call(
                "GET", "/v1/queries/{query}/reports", _READER, streams.reports,
                "Read the newest batches of a stream", "forbidden", "invalid-body", _CURSOR,
            ),
            Call(
                "GET", "/v1/streams", _READER, streams.listed, "List the streams that have reported",
                "forbidden",
            ),
            Call(
                "DELETE", "/v1/streams/{query}", _WRITER, streams.remove,
                "Remove a stream that has ended or vanished", "invalid-body", *_REPORT, status=204,
            ),
            Call(
                "GET", "/v1/health", _READER, streams.health, "Check the registry and its streams",
                "forbidden",
            ),
        ),
        "tokens": (
            Call(
                "POST", tokens.PATH, _ADMIN, tokens.create, "Create a token", "read-only",
                ("invalid-subscription", "A topic filter or a pattern is invalid"),
                status=201, example={"role": "admin", "name": "operations"},
            ),
            Call("GET", tokens.PATH, _ADMIN, tokens.listed, "List tokens"),
            Call(
                "DELETE", f"{tokens.PATH}/{{token}}", _ADMIN, tokens.revoke, "Revoke a token", *_REPORT,
                status=204,
            ),
        ),
        "service": (
            Call("GET", "/v1/limits", _READER, system.limits, "Show the limits of requests"),
            Call("GET", "/v1/caller", _READER, system.caller, "Show whose token is sent"),
            Call(
                "GET", "/metrics", _READER, system.metrics, "Show metrics for Prometheus", "forbidden",
                responses={200: {"description": "The metrics.", "content": {"text/plain": _TEXT}}},
            ),
            Call("GET", "/healthz", _READER, system.health, "Check that the process is alive"),
            Call(
                "GET", "/readyz", _READER, system.ready, "Check that the registry is readable and published",
                responses={503: "The service is not ready."},
            ),
            Call("GET", "/", _READER, system.front),
            Call("GET", "/docs", _READER, system.docs),
            Call("GET", "/openapi.json", _READER, system.openapi),
        ),
        "queues": (
            Call(
                "POST", _MESSAGES, _WRITER, queue_messages.put, "Put a message on a queue", *_PUT,
                status=201, responses={201: "The message is on the queue; its ids are in the headers."},
                content=_BODIES, headers=queue_messages.SETTABLE_HELP,
            ),
            Call(
                "GET", _MESSAGES, _READER, queue_messages.browse, "Browse the first matching message",
                *_SELECT, *_QUEUE, "forbidden", responses=_FOUND,
            ),
            Call(
                "DELETE", _MESSAGES, _WRITER, queue_messages.get,
                "Get the first matching message, which leaves the queue", *_SELECT, *_QUEUE, "read-only",
                responses=_FOUND,
            ),
            Call(
                "GET", f"{_MESSAGES}list", _READER, queue_messages.listed, "List the first matching messages",
                *_SELECT, *_QUEUE, "forbidden",
            ),
            Call(
                "POST", MESSAGING + "topic/{topic:path}/message", _WRITER, topics.publish,
                "Put a message on the queue of each matching subscription", *_PUT, status=201,
                responses={201: "The message is on the queues of all subscriptions that match it."},
                content=_BODIES, headers=queue_messages.SETTABLE_HELP,
            ),
            Call(
                "GET", f"{_Q}:count", _READER, queue_bulk.count,
                "Show how many messages of a queue match", *_SELECT, "queue-not-found", "forbidden",
            ),
            Call(
                "POST", f"{_Q}:purge", _WRITER, queue_bulk.purge, "Remove the matching messages of a queue",
                *_PURGE, example={"correlationId": "order-7"},
            ),
            Call(
                "POST", f"{_Q}:move", _WRITER, queue_bulk.move,
                "Put the matching messages of a queue on another one", *_PURGE, "invalid-queue",
                example={"to": "Q", "selector": "weight > 2500"},
            ),
            Call("GET", queues.PATH, _READER, queues.listed, "List queues", "forbidden"),
            Call("GET", _Q, _READER, queues.get, "Describe a queue", "forbidden", "queue-not-found"),
            Call(
                "PUT", _Q, _ADMIN, queues.put, "Create a queue", "invalid-queue", "queue-taken", "read-only",
                responses={201: "Created."}, example={"order": "fifo", "max_depth": 10_000},
            ),
            Call(
                "DELETE", _Q, _ADMIN, queues.delete, "Delete a queue",
                "queue-not-found", "queue-not-empty", "read-only", status=204,
            ),
        ),
        "jobs": (
            Call(
                "GET", jobs.PATH, _READER, jobs.listed, "List the jobs whose dead letters are shown",
                "forbidden",
            ),
            Call(
                "GET", f"{_J}/dead-letters", _READER, jobs.dead_letters,
                "List dead letters of a job", "forbidden", *_JOB,
            ),
            Call(
                "GET", f"{_J}/dead-letters:bytes", _READER, jobs.raw_bytes,
                "Read the bytes of a dead letter", "forbidden", "not-found", *_JOB,
                responses={200: {"description": "The bytes.", "content": {_OCTETS: _BINARY}}},
            ),
            Call(
                "POST", f"{_J}/dead-letters:preview", _READER, jobs.preview,
                "Show what a replay would do", "job-not-found", example={"reasons": ["not-json"]},
            ),
            Call(
                "POST", f"{_J}/replays", _WRITER, jobs.replay, "Replay dead letters",
                "job-not-found", "letters-changed", status=202,
                example={"reasons": ["not-json"], "expected": 3},
            ),
            Call(
                "GET", f"{_J}/replays/{{request}}", _READER, jobs.replayed,
                "Show whether a replay is done", "forbidden", "not-found", *_JOB,
            ),
            Call("POST", f"{_J}/audits", _READER, jobs.audit, "Check the accounts of a job", *_JOB),
        ),
    }
)  # fmt: skip
"""Calls by their tags."""
