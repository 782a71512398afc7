"""Arguments of the wrong kind: one sentence that names the parameter and says what to give."""

from __future__ import annotations

from typing import Any


def check_argument(value: object, kinds: type | tuple[type, ...], name: str, wanted: str) -> None:
    """Make sure that an argument is of one of these types.

    Args:
        value: what was given.
        kinds: its possible types.
        name: the parameter.
        wanted: what to give, to follow "give".

    Raises:
        TypeError: it is of another type.

    >>> check_argument(5, str, "topic", "a topic filter such as 'cars/+', or None")
    Traceback (most recent call last):
    TypeError: topic is an int: give a topic filter such as 'cars/+', or None
    """
    if not isinstance(value, kinds):
        raise TypeError(wrong_kind(value, name, wanted))


def wrong_kind(value: object, name: str, wanted: str) -> str:
    """Return the sentence about an argument of another type than `wanted`."""
    return f"{name} is {described(value)}: give {wanted}"


def described(value: Any) -> str:
    """Return what a value is, with an article.

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
