"""What a registry keeps beside subscriptions: queries and their batches, tokens, settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from selectroute.registry import queries
from selectroute.registry import tokens as token_rows
from selectroute.registry.changes import Backfill, EffectiveFrom
from selectroute.registry.errors import InvalidSpecError, PublishError
from selectroute.registry.history import History
from selectroute.registry.permission import EVERYTHING, Permission
from selectroute.registry.revision import new_id
from selectroute.registry.settings import read_setting, write_setting
from selectroute.registry.tokens import Token


class Administration(History):
    """The part of a `Registry` that is no revision of it. All raise `StoreError` as the database says."""

    # ---- queries

    def note_query(self, query: str, *, source: str, can_replay: bool, reason: str | None = None) -> None:
        """Make a query known: what it reads, and whether it can read it again (if not, why)."""
        with self._store.writing() as connection:
            queries.note_query(connection, query, source, can_replay, reason)

    def queries(self) -> list[Backfill]:
        """The queries that are known, by their names, and whether each can read again."""
        with self._store.reading() as connection:
            return queries.backfills(connection)

    def note_batch(self, query: str, batch: int, revision: int) -> None:
        """Say that a batch of a query was delivered by a revision."""
        with self._store.writing() as connection:
            queries.note_batch(connection, query, batch, revision)

    def effective_from(self, revision: int) -> list[EffectiveFrom]:
        """The first batch of each query that used this revision or a later one; none before it is known."""
        with self._store.reading() as connection:
            return queries.effective_from(connection, revision)

    def newest_used(self) -> int:
        """The newest revision that a batch of any query used, 0 before the first."""
        with self._store.reading() as connection:
            return queries.newest_used(connection)

    # ---- tokens

    def add_token(
        self,
        role: str,
        *,
        topics: Iterable[str] = (),
        queues: Iterable[str] = (),
        kafka: Iterable[str] = (),
        name: str | None = None,
        by: Permission = EVERYTHING,
    ) -> tuple[Token, str]:
        """Make a token for a role. Returns it and its secret, which is stored nowhere.

        Args:
            role: reader, writer or admin.
            topics: the filters within which it may touch subscriptions; without any, all.
            queues: patterns of queues (``CARS.*``) that its subscriptions may name, and that it may use.
            kafka: patterns of Kafka topics that its subscriptions may name. A token with topics and without
                patterns may name no destination.
            name: what it is for; its id by default.
            by: who makes it. Raises `AuthError` if that one's token is revoked.
        """
        with self._store.writing() as connection:
            by.check_known(connection)
            return token_rows.add_token(connection, new_id(), role, topics, queues, kafka, name)

    def tokens(self) -> list[Token]:
        """All tokens."""
        with self._store.reading() as connection:
            return token_rows.tokens(connection)

    def had_tokens(self) -> bool:
        """Whether there is a token, or ever was one: then nobody is let in without."""
        with self._store.reading() as connection:
            return token_rows.had_tokens(connection)

    def revoke_token(self, id: str, *, by: Permission = EVERYTHING) -> None:
        """Revoke a token. Raises `NotFoundError`, and `AuthError` if the token of `by` is revoked."""
        with self._store.writing() as connection:
            by.check_known(connection)
            token_rows.revoke_token(connection, id)

    def authenticate(self, secret: str) -> Token:
        """The token of a secret. Raises `AuthError`."""
        with self._store.reading() as connection:
            return token_rows.authenticate(connection, secret)

    # ---- settings

    @property
    def id(self) -> str:
        """What tells this registry from every other one."""
        return self.setting("id") or ""

    def setting(self, name: str) -> str | None:
        """A setting's value, None if it is not set."""
        with self._store.reading() as connection:
            return read_setting(connection, name)

    def set(self, name: str, value: str | None) -> None:
        """Set a setting, or unset it: ``snapshots`` is the folder that revisions are published to."""
        if name != "snapshots":
            raise InvalidSpecError(f"/{name}", "the one setting is snapshots")
        with self._store.writing() as connection:
            write_setting(connection, name, value)

    @property
    def snapshots_folder(self) -> Path:
        """Where revisions are published: the setting ``snapshots``, or beside a SQLite database.

        Raises `PublishError` where there is neither.
        """
        given = self.setting("snapshots")
        if given is not None:
            return Path(given)
        if self._store.is_sqlite:
            return Path(self._store.path + ".snapshots")
        raise PublishError(
            "no folder is set to publish revisions to: name one (--snapshots), or set the registry's"
            " `snapshots`"
        )
