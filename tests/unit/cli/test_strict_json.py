"""Lines of the command line are refused as by every other way in, with their file and line."""

import pytest

from tests.support.hostile_json import HOSTILE, NAMES, NOT_UTF_8


@pytest.mark.parametrize(
    "arguments",
    [
        ("index", "build", "-", "out"),
        ("subscription", "import", "-", "--registry", "sqlite:///s.db"),
        ("selector", "match", "a = 1", "-"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(("text", "said"), [*HOSTILE, NOT_UTF_8], ids=NAMES)
def test_a_hostile_line_is_refused_with_its_place(run, monkeypatch, tmp_path, arguments, text, said):
    monkeypatch.chdir(tmp_path)
    good = b'{"id": "good"}\n' if arguments[0] != "selector" else b"{}\n"
    code, _, err = run(*arguments, stdin=good + text + b"\n")
    assert code == 1 and f"<stdin>:2: {said}" in err
