"""Where the deliveries of a subscription go besides ``deliveries/``, as the one text that snapshots have:
``queue:ORDERS``, ``kafka:cars``, NULL for nowhere else.

``files:NAME`` was registered by earlier releases and never did anything: it is read where it is stored, and
refused where it is given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from selectroute.index.errors import DestinationError
from selectroute.index.subscription import ID

FILES: Final = "files"
QUEUE: Final = "queue"
KAFKA: Final = "kafka"
NOWHERE: Final = "none"
"""The kinds of destinations; the last one has no name, and that of files is only read."""

FILES_REFUSED: Final = (
    "deliveries are always recorded in files under deliveries/; a destination besides these is queue:NAME or "
    "kafka:TOPIC"
)
"""Says to whoever gives the kind `FILES` what to do."""

QUEUE_NAME: Final = "[A-Za-z0-9./_%]{1,48}"
"""IBM MQ's rule for the names of queues."""

TOPIC_NAME: Final = "(?![.]{1,2}$)[A-Za-z0-9._-]{1,249}"
"""Kafka's rule for the names of topics."""

NAMES: Final[Mapping[str, str]] = MappingProxyType({FILES: ID, QUEUE: QUEUE_NAME, KAFKA: TOPIC_NAME})
"""What a name is for each kind that may be stored with one, as a regular expression."""

_TEXT: Final = re.compile("|".join(f"{kind}:(?:{name})" for kind, name in NAMES.items()))


def destination_text(kind: str, name: str | None) -> str | None:
    """Return the text of a destination, unchecked; None for nowhere else."""
    return None if kind == NOWHERE else f"{kind}:{name or ''}"


def is_destination(text: str) -> bool:
    """Return whether a text names a destination as it may be stored.

    >>> is_destination("queue:ORDERS"), is_destination("queue:"), is_destination("mail:a")
    (True, False, False)
    """
    return _TEXT.fullmatch(text) is not None


def check_destination(text: str) -> None:
    """Make sure that deliveries can go to a destination that is given. Raises `DestinationError`."""
    if text.startswith(f"{FILES}:"):
        raise DestinationError(FILES_REFUSED)
    if not is_destination(text):
        raise DestinationError(f"a destination is queue:NAME or kafka:TOPIC, not {text[:60]!r}")
