"""The properties of a message as the text that databases and files have of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from selectroute.selector.message import MessageError, from_wire, to_wire
from selectroute.selector.values import Value
from selectroute.store.errors import DamagedError


def text_of(properties: Mapping[str, Value]) -> str:
    """Return properties as JSON, with the types that JSON has not."""
    return json.dumps({name: to_wire(value) for name, value in properties.items()}, ensure_ascii=True)


def properties_of(text: str) -> Mapping[str, Value]:
    """Return the properties that were written as JSON. Raises DamagedError."""
    try:
        found = {name: from_wire(name, value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError, RecursionError, MessageError) as error:
        raise DamagedError(f"the properties of a message on a queue are damaged: {error}") from error
    return MappingProxyType({name: value for name, value in found.items() if value is not None})
