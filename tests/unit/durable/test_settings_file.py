"""Files of settings, and secrets that are pickled as their place."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys

import pytest

from selectroute.durable.settings_file import (
    SettingsFileError,
    read_settings,
    secrets_by_reference,
    url_by_reference,
)

SECRET = 'hunter2\\"=# '


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b\r\nc=d\re=f\n", {"a": "b", "c": "d", "e": "f"}),
        (" \t a \t = \t b c \t ", {"a": "b c"}),
        ("a = = b", {"a": "= b"}),
        ("a=\na=2", {"a": "2"}),
        ("# x\n  ! y=z\n\n\f\na=b # no comment", {"a": "b # no comment"}),
        ('a=\\\\\\"\\=\\:\\\\', {"a": '\\"=:\\'}),
        ("a=\x85\u2028é", {"a": "\x85\u2028é"}),
    ],
)
def test_a_line_is_a_name_and_a_value(tmp_path, text, expected):
    file = tmp_path / "settings"
    file.write_bytes(text.encode())
    assert read_settings(str(file)) == expected


@pytest.mark.parametrize(
    "line", ["hunter2", "=hunter2", "a: hunter2", "a=hunter2\\", "a=\\n", "a=\\\\\\u0041"]
)
def test_another_line_is_an_error_with_its_number_only(tmp_path, line):
    file = tmp_path / "settings"
    file.write_text(f"a=b\n\n{line}\n")
    with pytest.raises(SettingsFileError) as raised:
        read_settings(str(file))
    assert str(raised.value).startswith(f"{file}:3: not name=value") and "hunter2" not in repr(raised.value)


def test_a_secret_is_pickled_as_its_place_in_a_file_of_this_user(tmp_path):
    file = tmp_path / "settings"
    file.write_text("user=me\npassword=hunter2\n")
    for options in (read_settings(str(file)), {"user": "me", "password": SECRET}):
        settings = secrets_by_reference(options, {"password"})
        pickled = pickle.dumps(settings)
        assert b"hunter2" not in pickled and b"me" in pickled
        copied = pickle.loads(pickled)  # noqa: S301 - what this test pickled itself
        assert copied == settings == options and b"hunter2" not in pickle.dumps(copied)
    place = settings["password"].__reduce__()[1][0]
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(place)).st_mode) == 0o700


@pytest.mark.parametrize(
    ("url", "is_secret"),
    [
        ("sqlite:////data/q.db", False),
        ("postgresql+psycopg://me@host/q", False),
        ("postgresql+psycopg://me:hunter2@host/q", True),
        ("postgresql+psycopg://host/q?password=hunter2", True),
    ],
)
def test_a_url_is_pickled_as_a_place_if_it_has_a_password(url, is_secret):
    pickled = pickle.dumps(url_by_reference(url))
    assert (url.encode() not in pickled) == is_secret
    assert pickle.loads(pickled) == url  # noqa: S301 - what this test pickled itself


def test_a_file_that_another_machine_lacks_is_named(tmp_path):
    file = tmp_path / "settings"
    file.write_text("password=hunter2\n")
    pickled = pickle.dumps(read_settings(str(file)))
    for text, problem in (("", "it has no setting password"), (None, "can't be read: No such file")):
        file.unlink() if text is None else file.write_text(text)
        with pytest.raises(SettingsFileError, match=f"{file}, which each machine of a cluster .*{problem}"):
            pickle.loads(pickled)  # noqa: S301 - what this test pickled itself


def test_the_file_of_a_secret_ends_with_the_process(tmp_path):
    program = (
        "import os, pickle\nfrom selectroute.durable.settings_file import url_by_reference\n"
        "pickle.dumps(url_by_reference('a://b:hunter2@c'))\n"
        "if os.fork() == 0: raise SystemExit\nos.wait()\nprint(len(os.listdir(os.environ['TMPDIR'])))"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (ended.stdout, list(tmp_path.iterdir())) == ("1\n", [])
