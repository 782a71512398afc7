"""Arguments of the wrong kind: one sentence that names the parameter and says what to give."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any


def check_argument(value: object, kinds: type | tuple[type, ...], name: str, wanted: str) -> None:
    """Make sure that an argument is of one of these types.

    Args:
        value: the argument.
        kinds: the types allowed.
        name: the parameter.
        wanted: what to give instead, as it follows "give".

    Raises:
        TypeError: the argument is of another type.

    >>> check_argument(5, str, "topic", "a topic filter such as 'cars/+', or None")
    Traceback (most recent call last):
    TypeError: topic is an int: give a topic filter such as 'cars/+', or None
    """
    if not isinstance(value, kinds):
        raise TypeError(wrong_kind(value, name, wanted))


def wrong_kind(value: object, name: str, wanted: str) -> str:
    """Return the error text for an argument that is not `wanted`."""
    return f"{name} is {described(value)}: give {wanted}"


def described(value: Any) -> str:
    """Return the type of a value, with its article.

    >>> described({}), described(None), described(int)
    ('a dict', 'None', 'the class int')
    """
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    # "a DataFrame" could be that of pandas or of Spark.
    name = f"{package}.{kind.__name__}" if package in ("pandas", "pyarrow", "pyspark") else kind.__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def check_path(value: object, name: str, wanted: str) -> None:
    """Make sure that an argument is the path of a file or directory. Raises TypeError."""
    check_argument(value, (str, os.PathLike), name, wanted)


def check_iterable(value: object, name: str, wanted: str) -> None:
    """Make sure that an argument is iterable, but not text, bytes or a mapping. Raises TypeError."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(wrong_kind(value, name, wanted))
