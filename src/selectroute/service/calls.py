"""Table of all calls: the routes of the service and its OpenAPI document are made from these rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from selectroute.registry.role import Role
from selectroute.service import system
from selectroute.service.http.call import JSON, Call
from selectroute.service.http.middleware import IMPORT, MESSAGING
from selectroute.service.jobs import calls as jobs
from selectroute.service.queues import administration as queues
from selectroute.service.queues import messages as queue_messages
from selectroute.service.subscriptions import bulk, changes, messages, samples, streams, subscriptions, tokens

reader, writer, admin = Role.reader, Role.writer, Role.admin

# ---- problems that several calls have

_CURSOR: Final = ("invalid-subscription", "The cursor is not one of this registry")
_SPEC: Final = ("invalid-selector", "invalid-topic-filter", "invalid-subscription")
_NAMES: Final = ("name-taken", "id-taken")
_CHANGE: Final = ("subscription-not-found", "stale-revision", "read-only")
_REPORT: Final = ("not-found", "read-only")
_JOB: Final = ("job-not-found", "invalid-body")
_QUEUE: Final = ("queue-not-found", "queue-manager-not-found")
_PUT: Final = (*_QUEUE, "queue-full", "invalid-message", "message-too-large", "unsupported-media-type")
_SELECT: Final = ("invalid-selector", "too-costly")
_PURGE: Final = (*_SELECT, "queue-not-found", "count-changed", "read-only")

# ---- media types, bodies and examples

_OCTETS: Final = "application/octet-stream"
_TEXT: Final = {"schema": {"type": "string"}}
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_LINES: Final = '{"id": "light", "selector": "weight < 500"}\n{"id": "all"}\n'
_BODIES: Final = {
    kind: {**_BINARY, "example": example}
    for kind, example in (("text/plain", "shipped"), (JSON, '{"order": 7}'), (_OCTETS, "any bytes"))
}
_FOUND: Final = {
    200: {
        "description": "The message: its body, and all other fields as headers ibm-mq-….",
        "headers": queue_messages.OMITTED_HEADER,
        "content": {"text/plain": _BINARY, _OCTETS: _BINARY},
    },
    204: "There is no matching message (2033).",
}
_HEAVY: Final = {"selector": "JMSType = 'car' AND weight > 2500", "topic": "cars/+"}
_WEIGHT: Final = {"weight": {"type": "int", "value": 3000}}
_MESSAGE: Final = {"topic": "cars/eu", "headers": {"JMSType": "car"}, "properties": _WEIGHT}
_STEPS: Final = [{"op": "add", "id": "red", "selector": "color = 'red'"}, {"op": "pause", "id": "heavy"}]
_BATCH: Final = {
    "batch": 17, "revision": 3, "ended": "2026-01-31T12:00:00Z", "messages": 1_000, "routed": 900,
    "unrouted": 99, "dead_lettered": 1, "deliveries": 4_200, "seconds": {"match": 0.12, "commit": 0.004},
    "busiest": {"heavy": 4_000, "light": 200},
}  # fmt: skip
_STATE: Final = {"name": "flights", "waiting": {"queue": 0}, "behind": 250}

# ---- paths

_S: Final = subscriptions.PATH
_ONE: Final = f"{_S}/{{id}}"
_QUERY: Final = "/v1/queries/{query}"
_Q: Final = f"{queues.PATH}/{{name:path}}"
_MESSAGES: Final = MESSAGING + "queue/{queue:path}/message"
_J: Final = "/v1/jobs/{job}"

# fmt: off
CALLS: Final[Mapping[str, Sequence[Call]]] = {"subscriptions": (
    Call("GET", _S, reader, bulk.page, "List subscriptions", _CURSOR),
    Call("GET", f"{_S}:search", reader, bulk.searched, "List the subscriptions that a search finds", _CURSOR),
    Call("POST", f"{_S}:batch", writer, bulk.batch, "Change several subscriptions at one revision",
         *_SPEC, "too-costly", *_CHANGE, *_NAMES, "idempotency-conflict", example={"operations": _STEPS}),
    Call("POST", IMPORT, writer, bulk.import_, "Import subscriptions",
         *_SPEC, "too-costly", "too-large", "unsupported-media-type", "read-only", *_NAMES,
         content={bulk.NDJSON: {**_TEXT, "example": _LINES}}),
    Call("GET", f"{_S}:export", reader, bulk.export, "Export all subscriptions",
         responses={200: {"description": "One subscription a line.", "content": {bulk.NDJSON: _TEXT}}}),
    Call("GET", f"{_ONE}/activity", reader, streams.activity, "Show the last deliveries of a subscription",
         "subscription-not-found"),
    Call("GET", f"{_S}:activity", reader, streams.activities,
         "Show the last deliveries of several subscriptions"),
    Call("POST", _S, writer, subscriptions.register, "Register a subscription",
         *_SPEC, "read-only", "idempotency-conflict", "name-taken", status=201,
         example={**_HEAVY, "name": "heavy cars", "labels": {"team": "eu"}}),
    Call("GET", _ONE, reader, subscriptions.get, "Read a subscription", "subscription-not-found",
         responses={304: "If-None-Match names the current ETag, and no batch has used it yet."}),
    Call("PUT", _ONE, writer, subscriptions.put, "Replace a subscription, or register one under this id",
         *_SPEC, *_CHANGE, *_NAMES, "precondition-required", example=_HEAVY,
         responses={201: "Registered.", 204: "Replaced."}),
    Call("PATCH", _ONE, writer, subscriptions.patch, "Change fields of a subscription",
         *_SPEC, *_CHANGE, "name-taken", "precondition-required", responses={204: "Changed."},
         example={"selector": "weight > 3000", "labels": {"team": None}}),
    Call("DELETE", _ONE, writer, subscriptions.remove, "Remove a subscription",
         *_CHANGE, "precondition-required", responses={204: "Removed."}),
    Call("POST", f"{_ONE}:pause", writer, subscriptions.pause, "Pause a subscription", *_CHANGE,
         responses={204: "Paused."}),
    Call("POST", f"{_ONE}:resume", writer, subscriptions.resume, "Resume a subscription", *_CHANGE,
         responses={204: "Resumed."}, example={"from": "last-processed"}),
), "questions": (
    Call("POST", "/v1/selectors:check", reader, messages.check, "Check a selector",
         example={"selector": "color = 'red'", "dialect": "ibm-mq"}),
    Call("POST", "/v1/messages:match", reader, messages.match, "Match a message", "invalid-message",
         example={"message": _MESSAGE, "limit": 100}),
    Call("POST", "/v1/messages:explain", reader, messages.explain,
         "Explain why subscriptions get a message or do not", "invalid-message", "subscription-not-found",
         example={"message": _MESSAGE, "subscriptions": ["heavy"]}),
    Call("POST", f"{_QUERY}/messages", writer, samples.note,
         "Report some messages, for the sample of recent ones", *_REPORT, "invalid-message", status=204,
         example={"messages": [_MESSAGE]}),
    Call("GET", "/v1/messages", reader, samples.listed, "List the newest messages of the sample"),
    Call("GET", "/v1/messages/identifiers", reader, samples.identifiers,
         "List the identifiers in recent messages"),
    Call("POST", f"{_S}:dry-run", reader, samples.dry_runs,
         "Show which recent messages a change gains or loses", *_SPEC, "subscription-not-found",
         example={"id": "heavy", "subscription": _HEAVY}),
), "changes": (
    Call("GET", changes.PATH, reader, changes.changes, "Read the change log, or wait for a change", _CURSOR),
    Call("GET", f"{_ONE}/changes", reader, changes.history, "Read the history of a subscription",
         _CURSOR, "subscription-not-found"),
    Call("GET", "/v1/queries", writer, changes.queries, "List the queries that read this registry"),
    Call("POST", _QUERY, writer, changes.query, "Announce a query", *_REPORT, status=204,
         example={"source": "the folder /srv/messages", "can_replay": True, "reason": None}),
    Call("POST", f"{_QUERY}/batches", writer, changes.batch, "Report the revision that a batch used",
         *_REPORT, status=204, example={"batch": 7, "revision": 1}),
), "streams": (
    Call("POST", f"{_QUERY}/reports", writer, streams.report, "Report batches of a stream, or a sign of life",
         *_REPORT, status=204, example={"batches": [_BATCH], "state": _STATE}),
    Call("GET", f"{_QUERY}/reports", reader, streams.reports, "Read the newest batches of a stream",
         "forbidden", "invalid-body", _CURSOR),
    Call("GET", "/v1/streams", reader, streams.listed, "List the streams that have reported", "forbidden"),
    Call("DELETE", "/v1/streams/{query}", writer, streams.remove,
         "Remove a stream that has ended or vanished", "invalid-body", *_REPORT, status=204),
    Call("GET", "/v1/health", reader, streams.health, "Check the registry and its streams", "forbidden"),
), "tokens": (
    Call("POST", tokens.PATH, admin, tokens.create, "Create a token", "read-only",
         ("invalid-subscription", "A topic filter or a pattern is invalid"), status=201,
         example={"role": "admin", "name": "operations"}),
    Call("GET", tokens.PATH, admin, tokens.listed, "List tokens"),
    Call("DELETE", f"{tokens.PATH}/{{token}}", admin, tokens.revoke, "Revoke a token", *_REPORT, status=204),
), "service": (
    Call("GET", "/v1/limits", reader, system.limits, "Show the limits of requests"),
    Call("GET", "/v1/caller", reader, system.caller, "Show whose token is sent"),
    Call("GET", "/metrics", reader, system.metrics, "Show metrics for Prometheus", "forbidden",
         responses={200: {"description": "The metrics.", "content": {"text/plain": _TEXT}}}),
    Call("GET", "/healthz", reader, system.health, "Check that the process is alive"),
    Call("GET", "/readyz", reader, system.ready, "Check that the registry is readable and published",
         responses={503: "The service is not ready."}),
    Call("GET", "/", reader, system.front),
    Call("GET", "/docs", reader, system.docs),
    Call("GET", "/openapi.json", reader, system.openapi),
), "queues": (
    Call("POST", _MESSAGES, writer, queue_messages.put, "Put a message on a queue", *_PUT, "read-only",
         status=201, responses={201: "The message is on the queue; its ids are in the headers."},
         content=_BODIES, headers=queue_messages.SETTABLE_HELP),
    Call("GET", _MESSAGES, reader, queue_messages.browse, "Browse the first matching message",
         *_SELECT, *_QUEUE, "forbidden", responses=_FOUND),
    Call("DELETE", _MESSAGES, writer, queue_messages.get,
         "Get the first matching message, which leaves the queue", *_SELECT, *_QUEUE, "read-only",
         responses=_FOUND),
    Call("GET", f"{_MESSAGES}list", reader, queue_messages.listed, "List the first matching messages",
         *_SELECT, *_QUEUE, "forbidden"),
    Call("POST", MESSAGING + "topic/{topic:path}/message", writer, queues.publish,
         "Put a message on the queue of each matching subscription", *_PUT, "read-only", status=201,
         responses={201: "The message is on the queues of all subscriptions that match it."},
         content=_BODIES, headers=queue_messages.SETTABLE_HELP),
    Call("GET", f"{_Q}:count", reader, queue_messages.count, "Show how many messages of a queue match",
         *_SELECT, "queue-not-found", "forbidden"),
    Call("POST", f"{_Q}:purge", writer, queue_messages.purge, "Remove the matching messages of a queue",
         *_PURGE, example={"correlationId": "order-7"}),
    Call("POST", f"{_Q}:move", writer, queue_messages.move,
         "Put the matching messages of a queue on another one", *_PURGE, "invalid-queue",
         example={"to": "Q", "selector": "weight > 2500"}),
    Call("GET", queues.PATH, reader, queues.listed, "List queues", "forbidden"),
    Call("GET", _Q, reader, queues.get, "Describe a queue", "forbidden", "queue-not-found"),
    Call("PUT", _Q, admin, queues.put, "Create a queue", "invalid-queue", "queue-taken", "read-only",
         responses={201: "Created."}, example={"order": "fifo", "max_depth": 10_000}),
    Call("DELETE", _Q, admin, queues.delete, "Delete a queue", "queue-not-found", "queue-not-empty",
         "read-only", status=204),
), "jobs": (
    Call("GET", "/v1/jobs", reader, jobs.listed, "List the jobs whose dead letters are shown", "forbidden"),
    Call("GET", f"{_J}/dead-letters", reader, jobs.dead_letters, "List dead letters of a job",
         "forbidden", *_JOB),
    Call("GET", f"{_J}/dead-letters:bytes", reader, jobs.raw_bytes, "Read the bytes of a dead letter",
         "forbidden", *_JOB, "not-found",
         responses={200: {"description": "The bytes.", "content": {_OCTETS: _BINARY}}}),
    Call("POST", f"{_J}/dead-letters:preview", reader, jobs.preview, "Show what a replay would do",
         "job-not-found", example={"reasons": ["not-json"]}),
    Call("POST", f"{_J}/replays", writer, jobs.replay, "Replay dead letters",
         "job-not-found", "letters-changed", status=202, example={"reasons": ["not-json"], "expected": 3}),
    Call("GET", f"{_J}/replays/{{request}}", reader, jobs.replayed, "Show whether a replay is done",
         "forbidden", *_JOB, "not-found"),
    Call("POST", f"{_J}/audits", reader, jobs.audit, "Check the accounts of a job", *_JOB),
)}
# fmt: on
"""Calls by their tags."""
