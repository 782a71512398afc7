"""JSON objects sealed with their own SHA-256, which shows whether they have changed since they were written.
Without a seal, a flipped bit in a pin or a lease would name another revision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_SEAL = "seal"


def sealed(content: Mapping[str, Any]) -> str:
    """Return the text of an object, with its seal first."""
    digest = hashlib.sha256(json.dumps(content, indent=1).encode()).hexdigest()
    return json.dumps({_SEAL: digest, **content}, indent=1) + "\n"


def unsealed(data: bytes) -> dict[str, Any]:
    """Return the object of a sealed text. Raises ValueError for text that is not a JSON object, or does not
    match its seal.
    """
    try:
        content = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    content.pop(_SEAL, None)
    if data != sealed(content).encode():
        raise ValueError("the seal does not match the content")
    return content
