"""Destinations of a subscription's deliveries besides ``deliveries/``, as texts in snapshots:
``queue:ORDERS``, ``kafka:cars``, ``kafka:cars?grouping=message``, NULL for no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from selectroute.index.errors import DestinationError

QUEUE: Final = "queue"
KAFKA: Final = "kafka"
NOWHERE: Final = "none"
"""Kinds of destinations; `NOWHERE` has no name."""

GROUPING_REFUSED: Final = "after a topic may follow ?grouping=delivery or ?grouping=message"
"""Error for a new destination of the kind `KAFKA` that has anything else after the topic."""

QUEUE_NAME: Final = "(?!(?:.*/)?[.]{1,2}(?:/|$))[A-Za-z0-9./_%]{1,48}"
"""IBM MQ's rule for the names of queues, but for those that lose a part in a URL."""

QUEUE_NAME_RULE: Final = "a queue's name is 1 to 48 of A-Z a-z 0-9 . / _ %, and no part of it is . or .."

TOPIC_NAME: Final = "(?![.]{1,2}$)[A-Za-z0-9._-]{1,249}"
"""Kafka's rule for the names of topics."""

BY_DELIVERY: Final = "delivery"
BY_MESSAGE: Final = "message"
GROUPINGS: Final = (BY_DELIVERY, BY_MESSAGE)
"""Groupings of a topic's records: one for each delivery, or one for each message."""

_GROUPING: Final = "?grouping="

KAFKA_NAME: Final = (
    "(?![.]{1,2}(?:$|[?]))[A-Za-z0-9._-]{1,249}(?:" + re.escape(_GROUPING) + f"(?:{'|'.join(GROUPINGS)}))?"
)
"""Name of a destination of the kind `KAFKA`: a topic, and after it the grouping of its own, if it has one."""

NAMES: Final[Mapping[str, str]] = MappingProxyType({QUEUE: QUEUE_NAME, KAFKA: KAFKA_NAME})
"""Regular expression of the names of each kind that may be stored."""

_TEXT: Final = re.compile("|".join(f"{kind}:(?:{name})" for kind, name in NAMES.items()))


def destination_text(kind: str, name: str | None) -> str | None:
    """Return the text of a destination, unchecked; None for no other."""
    return None if kind == NOWHERE else f"{kind}:{name or ''}"


def topic_and_grouping(name: str) -> tuple[str, str | None]:
    """Return the topic that the name of a destination of the kind `KAFKA` has, and the grouping; None if that
    of the job applies.

    >>> topic_and_grouping("cars?grouping=message"), topic_and_grouping("cars")
    (('cars', 'message'), ('cars', None))
    """
    topic, sign, grouping = name.partition(_GROUPING)
    return topic, grouping if sign else None


def is_destination(text: str) -> bool:
    """Return whether a text is a valid stored destination.

    >>> is_destination("queue:ORDERS"), is_destination("queue:"), is_destination("mail:a")
    (True, False, False)
    """
    return _TEXT.fullmatch(text) is not None


def check_destination(text: str) -> None:
    """Make sure that a new destination is valid. Raises `DestinationError`."""
    if not is_destination(text):
        if text.startswith(f"{KAFKA}:") and "?" in text:
            raise DestinationError(f"{GROUPING_REFUSED}, not {text[:60]!r}")
        raise DestinationError(f"a destination must be queue:NAME or kafka:TOPIC, not {text[:60]!r}")
