"""Files of settings, read as Kafka's tools read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectroute.kafka.client.properties import PropertiesError, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a=b\r\nc=d\re=f\n", {"a": "b", "c": "d", "e": "f"}),
        (" \t a \t = \t b c \t ", {"a": "b c"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a = = b", {"a": "= b"}),
        ("a=", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("# x\n  ! y=z\n\n\f\na=b # no comment", {"a": "b # no comment"}),
        ("a=b\\\n   c\\\n\td", {"a": "bcd"}),
        ("a=b \\\n\n c=d", {"a": "b", "c": "d"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\  \nc=d\\\\ ", {"a": "b ", "c": "d\\"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ('a=\\t\\n\\r\\f\\q\\\\\\"', {"a": '\t\n\r\fq\\"'}),
        ("a=\\u00e9é\\uD83D\\uDE00", {"a": "éé😀"}),
        ("a=\x85\u2028b", {"a": "\x85\u2028b"}),
        (
            'sasl.jaas.config=o.PlainLoginModule required \\\n  username="u" \\\n  password="a\\\\"b";\n',
            {"sasl.jaas.config": 'o.PlainLoginModule required username="u" password="a\\"b";'},
        ),
    ],
)
def test_properties_are_read_as_java_reads_them(text, expected):
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("secret", 1),
        ("a=b\n\nsecret\n", 3),
        ("=secret", 1),
        ("a=b\nc\\\n\\\nsecret", 2),
        ("a=\\ud83d", 1),
        ("a=\\u12", 1),
    ],
)
def test_a_line_that_is_not_a_property_is_an_error_with_its_number_only(text, line):
    with pytest.raises(PropertiesError) as raised:
        parse_properties(text)
    assert str(raised.value) == f"line {line} is not name=value" and "secret" not in repr(raised.value)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_escaped_properties_are_read_as_they_are(properties):
    def escaped(text):
        code = text.encode("utf-16-be")
        return "".join(f"\\u{code[i]:02x}{code[i + 1]:02x}" for i in range(0, len(code), 2))

    text = "".join(f"{escaped(name)}={escaped(value)}\n" for name, value in properties.items())
    assert parse_properties(text) == properties
