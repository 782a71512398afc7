"""Texts that some readers of JSON take and others refuse, each with what is said of it everywhere."""

HOSTILE = [
    (b'{"selector": "a = 1", "selector": ""}', "not valid JSON: duplicate member `selector` at column 23"),
    (b'{"topic": "a", "top\\u0069c": null}', "not valid JSON: duplicate member `topic` at column 16"),
    (b'{"labels": {"a": "b", "a" : "c"}}', "not valid JSON: duplicate member `a` at column 23"),
    (b'{"properties": {"a": NaN}}', "not valid JSON: NaN is not a number of JSON at column 22"),
    (b'{"created": -Infinity}', "not valid JSON: -Infinity is not a number of JSON at column 13"),
    (b'{"created": 1e400}', "not valid JSON: 1e400 is beyond the range of a double at column 13"),
    (b'{"name": -%s}' % (b"1" * 5_000), "not valid JSON: a number of 5,000 digits is too long at column 10"),
    (b'{"name": "\\ud800"}', "not valid JSON: half of a surrogate pair at column 10"),
    (b'{"name": "\\\\ud83d\\ude00"}', "not valid JSON: half of a surrogate pair at column 10"),
    (b'{"id": "a"}{"id": "b"}', "not valid JSON: Extra data at column 12"),
    (b'{"id": "a\tb"}', "not valid JSON: Invalid control character at column 10"),
    (b"[" * 100_000, "nested too deeply"),
]
NOT_UTF_8 = (b'{"name": "\xff"}', "not valid UTF-8 at byte 11")

NAMES = [*map(str, range(len(HOSTILE))), "not-utf-8"]
