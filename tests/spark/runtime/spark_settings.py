"""The settings that Spark knows, read from the jars that PySpark ships."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from functools import cache

from selectroute.testing.jars import spark_jars

# Some names are put together in Spark, of a prefix and an ending that begins with a dot; then \x01, in what
# the compiler makes of that, is the place of the prefix.
_TEXT = re.compile(rb"\x01?((?:spark)?\.[A-Za-z0-9_.]+)")
_UTF8, _WIDE = 1, {5, 6}
_SIZES = {4: (3, 4, 9, 10, 11, 12, 17, 18), 8: (5, 6), 2: (7, 8, 16, 19, 20), 3: (15,)}
_BYTES = {tag: size for size, tags in _SIZES.items() for tag in tags}
"""Length of each kind of constant in a class file (JVM specification, table 4.4-A)."""


@cache
def known_settings() -> frozenset[str]:
    """Return all texts in Spark's classes that have the form of a setting, or of a part of one."""
    found: set[str] = set()
    for jar in spark_jars().glob("spark-*.jar"):
        with zipfile.ZipFile(jar) as opened:
            for name in opened.namelist():
                if name.startswith("org/apache/spark/") and name.endswith(".class"):
                    texts = map(_TEXT.fullmatch, _texts(opened.read(name)))
                    found.update(text[1].decode() for text in texts if text)
    return frozenset(found)


def is_known(setting: str) -> bool:
    """Return whether Spark reads a setting: its name, a prefix of it that ends with a dot, or both parts."""
    known = known_settings()
    dots = [place for place, letter in enumerate(setting) if letter == "."][1:]  # `spark.` is no prefix
    return setting in known or any(
        setting[: dot + 1] in known or (setting[:dot] in known and setting[dot:] in known) for dot in dots
    )


def _texts(content: bytes) -> Iterator[bytes]:
    """Yield the texts of a class file."""
    (count,) = struct.unpack_from(">H", content, 8)
    place, number = 10, 1
    while number < count:
        tag = content[place]
        if tag == _UTF8:
            (length,) = struct.unpack_from(">H", content, place + 1)
            yield content[place + 3 : place + 3 + length]
            place += 3 + length
        else:
            place += 1 + _BYTES[tag]
        number += 2 if tag in _WIDE else 1
