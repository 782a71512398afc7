"""Bodies of records at the bound paths: of a schema registry's formats, or plain JSON.

Where a record without its schema is a dead letter, a task that runs again may find a schema that was missing
before, or miss one that was there, after it has sent what it judged then. So each decision is a file of its
own, written before any record of the schema is judged. Of two attempts the first decision stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from selectroute.kafka.binding import Path
from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.framing import SchemaId, at_path, framed, parsed, schema_of_prefix
from selectroute.kafka.schemas.registry import Schemas, SchemaUnavailableError
from selectroute.storage import Location


class Decisions:
    """Decisions of one task whether schemas are available, the same whenever it runs again.

    Args:
        folder: the folder of a batch, which need not exist yet.
        task: the number of the task.
    """

    def __init__(self, folder: Location, task: int) -> None:
        self._folder = folder
        self._task = task
        self._known: dict[SchemaId, RecordError | None] = {}

    def decide(self, id: SchemaId, outcome: RecordError | None) -> RecordError | None:
        """Return the decision on a schema: why it is not available, None if it is.

        It is this ``outcome`` unless an earlier attempt has decided. Raises OSError.
        """
        if id not in self._known:
            path = self._folder / f"{self._task}-{id}.json"
            content = {} if outcome is None else {"reason": outcome.reason, "problem": outcome.problem}
            self._folder.make_folder()
            try:
                path.put_new_json(content)
            except FileExistsError:
                content = path.read_json() or {}
            self._known[id] = RecordError("read", content["reason"], content["problem"]) if content else None
        return self._known[id]


class Bodies:
    """Reader of the values at some paths of bodies.

    With a registry, a body with a schema id is decoded by its schema. A body without one is JSON, as are all
    without a registry: topics may change from one to the other.

    Args:
        paths: the paths.
        schemas: the schemas of the registry.
        decisions: of a task that must decide on missing schemas as before when it runs again.
    """

    def __init__(
        self, paths: Sequence[Path], schemas: Schemas | None = None, decisions: Decisions | None = None
    ) -> None:
        self._paths = tuple(paths)
        self._schemas = schemas
        self._decisions = decisions

    def values(self, value: bytes | None, header: bytes | None = None) -> list[Any]:
        """Return the value at each path, None where there is none. A datum is decoded once, at all paths.

        Args:
            value: the body.
            header: the header with the schema id, `HEADER`.

        Raises:
            RecordError: the body is not valid.
            SchemaUnavailableError: its schema can't be fetched.
        """
        if value is None:
            return [None] * len(self._paths)
        if self._schemas is not None:
            frame = framed(value, header)
            if frame is not None:
                return self._schemas.decoder(frame.id, self._paths)(frame.datum, frame.message)
        body = parsed(value)
        return [at_path(body, path) for path in self._paths]

    def missing(
        self, prefixes: Iterable[bytes | None], headers: Iterable[bytes | None]
    ) -> dict[int, RecordError]:
        """Fetch the schemas of these bodies; return the errors of rows whose schema is not available.

        Args:
            prefixes: the first `PREFIX_BYTES` of each body.
            headers: the header with the schema id of each.

        Raises:
            SchemaUnavailableError: a schema is not available, and the registry's policy is to wait, or an
                earlier attempt had it.
        """
        errors: dict[int, RecordError] = {}
        if self._schemas is None:
            return errors
        known: dict[bytes, RecordError | None] = {}
        for row, (prefix, header) in enumerate(zip(prefixes, headers, strict=True)):
            if prefix is None or (header is None and prefix[:1] not in (b"\0", b"\1")):
                continue
            framing = header if header is not None else prefix[:5] if prefix[:1] == b"\0" else prefix
            if framing not in known:
                id = schema_of_prefix(prefix, header)
                known[framing] = None if id is None else self._unavailable(self._schemas, id)
            error = known[framing]
            if error is not None:
                errors[row] = error
        return errors

    def _unavailable(self, schemas: Schemas, id: SchemaId) -> RecordError | None:
        missing: SchemaUnavailableError | None = None
        try:
            schemas.decoder(id, self._paths)
        except SchemaUnavailableError as error:
            if schemas.on_missing == "wait":
                raise
            missing = error
        except RecordError:
            pass  # of the schema: each body of it is not valid
        outcome = None if missing is None else missing.as_record_error()
        if self._decisions is None:
            return outcome
        decided = self._decisions.decide(id, outcome)
        if decided is None and missing is not None:
            raise missing  # an earlier attempt had it
        return decided
