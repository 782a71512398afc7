"""Addresses of JMS destinations: names of topics and queues, and what they are in selectroute.

A topic's name in JMS has its levels between dots, a topic filter between slashes: ``cars.eu.heavy`` is the
topic ``cars/eu/heavy``, ``cars.+`` and ``cars.#`` are filters. A name with a slash is taken as it is.

A queue's name in JMS is any text; that of a queue has up to 48 characters of ``A-Za-z0-9./_%``. Any other
text becomes one that begins alike and ends in a percent sign and a digest.
"""

from __future__ import annotations

import re
from enum import Enum
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from selectroute.index.destination import QUEUE_NAME
from selectroute.selector.errors import SelectRouteError

MAX_ADDRESS: Final = 4_096
"""Most characters of an address."""

_QUEUE_NAME: Final = re.compile(QUEUE_NAME)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9./_]")
_DIGEST: Final = 16
_PREFIX: Final = 48 - 1 - _DIGEST


class AddressKind(Enum):
    """Kind of a destination."""

    QUEUE = "queue"
    TOPIC = "topic"


class AddressError(SelectRouteError):
    """Address that names nothing."""


class Address(NamedTuple):
    """Destination: its kind, its name, and the dialect of the selectors of its consumers, if it says one."""

    kind: AddressKind
    name: str
    dialect: str | None = None

    @classmethod
    def of(cls, text: str, kind: AddressKind | None) -> Address:
        """Return the destination of an address.

        Without a kind, ``topic://`` or ``queue://`` before the name says it, and otherwise it is a queue.
        ``?dialect=ibm-mq`` behind the name gives the dialect of selectors.

        Raises AddressError.
        """
        name, _, options = text.partition("?")
        for prefix in AddressKind:
            if name.startswith(f"{prefix.value}://"):
                name, kind = name.removeprefix(f"{prefix.value}://"), prefix
        if not 0 < len(name) <= MAX_ADDRESS:
            raise AddressError(f"an address has 1 to {MAX_ADDRESS:,} characters")
        dialect = None
        for option, value in parse_qsl(options, keep_blank_values=True):
            if option != "dialect":
                raise AddressError(f"{option!r:.40} is not an option of an address: the only one is dialect")
            dialect = value
        return cls(kind or AddressKind.QUEUE, name, dialect)


def topic_of(name: str) -> str:
    """Return the topic, or the topic filter, of a topic's name in JMS.

    >>> topic_of("cars.eu.+"), topic_of("cars/eu.west")
    ('cars/eu/+', 'cars/eu.west')
    """
    return name if "/" in name else name.replace(".", "/")


def queue_of(name: str) -> str:
    """Return the name of a queue, up to 48 characters, of a queue's name in JMS.

    >>> queue_of("ORDERS.IN"), queue_of("orders of Zoë")
    ('ORDERS.IN', 'orders_of_Zo_%001e692c0a55bb0e')
    """
    if _QUEUE_NAME.fullmatch(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{_UNSAFE.sub('_', name)[:_PREFIX]}%{digest}"
