"""Parser of ``sasl.jaas.config``: a login module of Java and its options, with Java's quoting rules.

An entry is ``MODULE FLAG NAME=VALUE …;``. Kafka reads it with Java's ``StreamTokenizer``: a value is a word
that begins with a letter, or stands in double or single quotes. Within quotes ``\\n``, ``\\t``, ``\\"``,
``\\\\`` and octal ``\\101`` are escapes. ``//`` and ``/* */`` are comments. Stricter than Java: a quote must
be closed, and a slash outside of quotes must begin a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from selectroute.kafka.client.values import SettingError

SETTING: Final = "sasl.jaas.config"

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""
    (?P<space> [\x00-\x20]+ | //[^\r\n]* | /\*.*?\*/ )
    | (?P<quoted> "(?:[^"\\\r\n]|\\.)*" | '(?:[^'\\\r\n]|\\.)*' )
    | (?P<word> [A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9._$\u00a0-\U0010ffff-]* )
    | (?P<mark> [=;] )
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Login:
    """Login of a client.

    Attributes:
        module: name of the Java class, without its package.
        options: options of the module; they contain the secrets.
    """

    module: str
    options: dict[str, str] = field(repr=False)


def login(text: str) -> Login:
    """Parse the value of ``sasl.jaas.config``, which has one entry.

    Raises:
        SettingError: it is not a valid entry. The text shows no part of it.

    >>> login('org.example.PlainLoginModule required username="u" password="a\\\\"b";').options
    {'username': 'u', 'password': 'a"b'}
    """
    tokens = _tokens(text)
    kind, module = next(tokens, ("", ""))
    if kind not in ("word", "quoted"):
        raise SettingError(SETTING, "must begin with a login module, such as PlainLoginModule")
    if next(tokens, ("", ""))[1].casefold() not in _FLAGS:
        raise SettingError(SETTING, "must have `required` after the login module")
    options: dict[str, str] = {}
    for kind, name in tokens:
        if name == ";" and kind == "mark":
            break
        equals, (is_value, value) = next(tokens, None), next(tokens, ("", ""))
        if kind == "mark" or equals != ("mark", "=") or is_value not in ("word", "quoted"):
            raise SettingError(
                SETTING, 'must be MODULE required NAME="VALUE" …; with each value in double quotes'
            )
        options[name] = value
    else:
        raise SettingError(SETTING, "must end with a semicolon")
    if next(tokens, None) is not None:
        raise SettingError(SETTING, "must have one entry: something follows its semicolon")
    return Login(module.rpartition(".")[2], options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the value of each token."""
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            problem = (
                "a quote that is not closed" if text[place] in "\"'" else "a character outside of quotes"
            )
            raise SettingError(
                SETTING, f'has {problem}: write each value in double quotes, and \\" and \\\\ within them'
            )
        place = match.end()
        kind = match.lastgroup or ""
        if kind == "quoted":
            yield kind, _ESCAPE.sub(_unescaped, match[0][1:-1])
        elif kind != "space":
            yield kind, match[0]


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)
