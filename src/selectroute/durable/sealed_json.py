"""JSON objects that are sealed: with their own SHA-256 they say themselves whether they are what was written.
A bit that turned in a pin or a lease would otherwise be another revision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_SEAL = "seal"


def sealed(content: Mapping[str, Any]) -> str:
    """Return the text of an object, with its seal before everything else."""
    return json.dumps({_SEAL: _digest(content), **content}, indent=1) + "\n"


def unsealed(data: bytes) -> dict[str, Any]:
    """Return the object that `sealed` made a text of. One of an earlier release, or of Spark, has no seal and
    is taken as it is. Raises ValueError for what is no object, or another one than its seal says.
    """
    try:
        content = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("it is no object")
    first = next(iter(content.items()), ("", None))
    if content.pop(_SEAL, None) is not None:
        if data != sealed(content).encode():
            raise ValueError("it is not what its seal says")
    elif isinstance(first[1], str) and len(first[1]) == len(_digest({})):
        # Nothing but a seal is so long and comes first: its name is what turned.
        raise ValueError("its seal has another name")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, indent=1).encode()).hexdigest()
