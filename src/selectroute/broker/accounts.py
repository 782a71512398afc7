"""Accounts of clients: who may connect, by a token of the registry, and what each may do."""

from __future__ import annotations

from dataclasses import dataclass

from selectroute.broker.addresses import Address, AddressKind, queue_of, topic_of
from selectroute.index.destination import QUEUE
from selectroute.registry.authorization import EVERYTHING, Permission, Tokens
from selectroute.registry.errors import AuthError, ForbiddenError
from selectroute.registry.role import Role


@dataclass(frozen=True, slots=True)
class ClientAccount:
    """Account of a client: its name, its role, and the destinations that it may use."""

    name: str
    role: Role
    permission: Permission = EVERYTHING

    def check(self, address: Address, needed: Role) -> None:
        """Check that the client may use a destination. Raises ForbiddenError."""
        if not self.role.includes(needed):
            raise ForbiddenError(
                "", f"this needs a token with the role {needed}, and this one has {self.role}"
            )
        if address.kind is AddressKind.TOPIC:
            permitted = self.permission.sees(topic_of(address.name))
        else:
            permitted = self.permission.may_name(QUEUE, queue_of(address.name))
        if not permitted:
            raise ForbiddenError("", f"the token does not permit the {address.kind.value} {address.name:.80}")


ANYBODY: ClientAccount = ClientAccount("anybody", Role.admin)


class Accounts:
    """Accounts of a registry's tokens. Safe for threads.

    Args:
        tokens: the tokens.
        is_open: whether a client without a token is admitted while no token ever existed.
    """

    def __init__(self, tokens: Tokens, *, is_open: bool) -> None:
        self._tokens = tokens
        self._is_open = is_open

    @property
    def admits_anybody(self) -> bool:
        """True if a client needs no token."""
        if self._is_open and self._tokens.had_any():
            self._is_open = False
        return self._is_open

    def authenticate(self, password: str) -> ClientAccount | None:
        """Return the account of a token's secret; None if there is none. Raises `StoreError`."""
        if self.admits_anybody:
            return ANYBODY
        try:
            token = self._tokens.authenticate(password)
        except AuthError:
            return None
        return ClientAccount(token.name, token.role, Permission.of(token))
