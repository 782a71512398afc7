"""Idempotency keys: the response of a request is stored for a day, in the transaction of its change."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select

from selectroute.registry.changes import Idempotency
from selectroute.registry.errors import IdempotencyConflictError
from selectroute.registry.log.tables import request, row_seal
from selectroute.registry.model import time_text
from selectroute.store.digests import row_digest
from selectroute.store.errors import DamagedError

KEPT: Final = timedelta(hours=24)


def answered(connection: Connection, asked: Idempotency | None) -> Any:
    """Return the stored response to the same request; None if there is none. Raises
    `IdempotencyConflictError`.
    """
    if asked is None:
        return None
    row = connection.execute(
        select(request).where(request.c.subject == asked.subject, request.c.key == asked.key)
    ).one_or_none()
    if row is None or row.time < time_text(datetime.now(UTC) - KEPT):
        return None
    if row.seal != row_seal(row):
        raise DamagedError("the table request is damaged in one of its rows")
    if row.digest != asked.request:
        raise IdempotencyConflictError("this Idempotency-Key was used with a different request")
    return json.loads(row.answer)


def keep(connection: Connection, asked: Idempotency | None, answer: Any) -> None:
    """Store a response, and delete those that are too old."""
    if asked is None:
        return
    now = datetime.now(UTC)
    connection.execute(delete(request).where(request.c.time < time_text(now - KEPT)))
    row = {
        "subject": asked.subject,
        "key": asked.key,
        "digest": asked.request,
        "answer": json.dumps(answer, ensure_ascii=False, separators=(",", ":")),
        "time": time_text(now),
    }
    connection.execute(insert(request), {**row, "seal": row_digest(*row.values())})
