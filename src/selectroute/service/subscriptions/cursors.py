"""Cursors for callers who may not see all subscriptions. A cursor contains the last id of its page, which may
be hidden from the caller: such cursors are encrypted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from functools import cached_property
from typing import Final

from selectroute.registry.log.change_log import no_cursor

_TAG: Final = 16


class HiddenCursors:
    """Encryption of cursors that only the service of this registry can read and create.

    The tag, a MAC of the cursor, is also the input of its key stream: equal cursors are encrypted equally,
    and different ones never with the same stream (SIV, RFC 5297, with HMAC and SHAKE for AES).

    >>> cursors = HiddenCursors(lambda: "a registry's id")
    >>> cursors.read(cursors.hidden("MS4uYQ"))
    'MS4uYQ'

    Args:
        secret: returns a secret of the registry; called for the first cursor.
    """

    def __init__(self, secret: Callable[[], str]) -> None:
        self._secret = secret

    @cached_property
    def _key(self) -> bytes:
        return hashlib.sha256(b"selectroute cursors " + self._secret().encode()).digest()

    def hidden(self, cursor: str) -> str:
        """Encrypt a cursor."""
        plain = cursor.encode()
        tag = self._tag(plain)
        return base64.urlsafe_b64encode(tag + self._turned(plain, tag)).decode().rstrip("=")

    def read(self, text: str) -> str:
        """Decrypt a cursor. Raises `InvalidSpecError` for one that this service did not issue."""
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            raise no_cursor() from None
        tag, plain = data[:_TAG], self._turned(data[_TAG:], data[:_TAG])
        if not hmac.compare_digest(tag, self._tag(plain)):
            raise no_cursor()
        return plain.decode()

    def _tag(self, plain: bytes) -> bytes:
        return hmac.digest(self._key, plain, "sha256")[:_TAG]

    def _turned(self, data: bytes, tag: bytes) -> bytes:
        stream = hashlib.shake_256(self._key + tag).digest(len(data))
        return bytes(byte ^ other for byte, other in zip(data, stream, strict=True))
