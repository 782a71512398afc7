"""Where the deliveries of a subscription go besides ``deliveries/``, as the one text that snapshots have:
``queue:ORDERS``, ``files:eu``, NULL for nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from selectroute.index.subscription import ID

FILES: Final = "files"
QUEUE: Final = "queue"
KAFKA: Final = "kafka"
NOWHERE: Final = "none"
"""The kinds of destinations; the last one has no name."""

QUEUE_NAME: Final = "[A-Za-z0-9./_%]{1,48}"
"""IBM MQ's rule for the names of queues."""

TOPIC_NAME: Final = "(?![.]{1,2}$)[A-Za-z0-9._-]{1,249}"
"""Kafka's rule for the names of topics."""

NAMES: Final[Mapping[str, str]] = MappingProxyType({FILES: ID, QUEUE: QUEUE_NAME, KAFKA: TOPIC_NAME})
"""What a name is for each kind that has one, as a regular expression."""

_TEXT: Final = re.compile("|".join(f"{kind}:(?:{name})" for kind, name in NAMES.items()))


def destination_text(kind: str, name: str | None) -> str | None:
    """Return the text of a destination, unchecked; None for nowhere else."""
    return None if kind == NOWHERE else f"{kind}:{name or ''}"


def is_destination(text: str) -> bool:
    """Return whether a text names a destination.

    >>> is_destination("queue:ORDERS"), is_destination("queue:"), is_destination("mail:a")
    (True, False, False)
    """
    return _TEXT.fullmatch(text) is not None
