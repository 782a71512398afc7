"""What commands are told: options, environment, file, defaults, in this order; and no secret is shown."""

import json
import socket

import pytest

from selectroute.registry.registry import Registry
from tests.support.servers.serving import served

TOKEN = 'token = "srt_canary"'


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Write the configuration file; nothing else tells of a registry."""
    monkeypatch.delenv("SELECTROUTE_REGISTRY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(text, encoding="utf-8"):
        path = tmp_path / "config" / "selectroute" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding)
        return path

    return write


def test_options_go_before_environment_before_file_before_defaults(run, config, monkeypatch, tmp_path):
    def made(*arguments):
        code, out, err = run("subscription", "add", "a = 1", "-o", "json", *arguments)
        assert code == 0, err
        return json.loads(out)["dialect"]

    config(f'registry = "sqlite:///{tmp_path}/file.db"\n')
    assert made() == "jms" and (tmp_path / "file.db").exists()
    config(f'registry = "sqlite:///{tmp_path}/file.db"\ndialect = "mqe"\n')
    assert made() == "mqe"
    monkeypatch.setenv("SELECTROUTE_DIALECT", "ibm-mq")
    monkeypatch.setenv("SELECTROUTE_REGISTRY", f"sqlite:///{tmp_path}/environment.db")
    assert made() == "ibm-mq" and (tmp_path / "environment.db").exists()
    assert made("--dialect", "ibm-jms", "--registry", f"sqlite:///{tmp_path}/option.db") == "ibm-jms"
    assert (tmp_path / "option.db").exists()
    monkeypatch.delenv("SELECTROUTE_REGISTRY")
    named = tmp_path / "named.toml"
    named.write_text(f'registry = "sqlite:///{tmp_path}/named.db"\n')
    monkeypatch.setenv("SELECTROUTE_CONFIG", str(named))
    assert made() == "ibm-mq" and (tmp_path / "named.db").exists()


def test_without_a_registry_it_is_said_how_to_name_one(run, config):
    code, _, err = run("subscription", "list")
    assert code == 2 and "SELECTROUTE_REGISTRY" in err


def test_a_configuration_that_cannot_be_read_is_wrong_usage_and_shows_no_secret(run, config, monkeypatch):
    for text in (
        'token = "canary',
        'timeout = "canary"',
        'registry = ["canary"]',
        "token = canary",
        "\ufeffx",
    ):
        config(f'registry = "http://127.0.0.1:9"\n{text}\n')
        code, out, err = run("subscription", "list")
        assert code == 2 and "canary" not in out + err
    config("é", "latin-1")
    assert run("subscription", "list")[0] == 2
    monkeypatch.setenv("SELECTROUTE_CONFIG", "/nowhere.toml")
    assert run("subscription", "list")[0] == 2


def test_the_token_is_told_by_the_environment_and_never_printed(run, tmp_path, monkeypatch):
    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as opened:
        _, secret = opened.tokens.add("reader")
        with served(opened) as url:
            monkeypatch.setenv("SELECTROUTE_REGISTRY", url)
            code, _, err = run("subscription", "list")
            assert code == 1 and "oken" in err
            monkeypatch.setenv("SELECTROUTE_TOKEN", secret)
            code, out, err = run("subscription", "list")
            assert code == 0 and secret not in out + err
            code, out, err = run("subscription", "add", "a = 1")
            assert code == 1 and secret not in out + err


@pytest.mark.parametrize(
    ("mode", "line", "warns"),
    [
        (0o600, TOKEN, False),
        (0o640, TOKEN, True),
        (0o604, TOKEN, True),
        (0o644, TOKEN, True),
        (0o644, 'dialect = "jms"', False),
    ],
)
def test_a_token_that_others_can_read_is_warned_of(run, config, tmp_path, mode, line, warns):
    path = config(f'registry = "sqlite:///{tmp_path}/r.db"\n{line}\n')
    path.chmod(mode)
    code, out, err = run("subscription", "add", "a = 1")
    assert code == 0 and "canary" not in out + err
    assert (f"chmod 600 {path}" in err) is warns


def test_a_key_that_is_no_setting_is_named_with_the_one_that_was_meant(run, config, tmp_path):
    url = f"sqlite:///{tmp_path}/r.db"
    path = config(f'registri = "x"\nregistry = "{url}"\nport = 9000\n[limits]\npage = 9\n')
    code, _, err = run("subscription", "add", "a = 1")
    assert code == 0 and f"{path} has no setting `registri`: did you mean `registry`?" in err
    assert "port" not in err and "limits" not in err


def test_a_log_is_text_or_json(run, config, tmp_path, monkeypatch):
    monkeypatch.setenv("SELECTROUTE_REGISTRY", f"sqlite:///{tmp_path}/r.db")
    for options in (("--log", "xml"), ()):
        code, _, err = run("serve", *options)
        assert code == 2 and "log: Input should be 'text' or 'json'" in " ".join(
            err.replace("│", " ").split()
        )
        config('log = "xml"\n')
    assert not (tmp_path / "r.db").exists()


def test_where_an_address_cannot_be_listened_on_no_database_is_made(run, config, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run("serve", "--registry", f"sqlite:///{tmp_path}/r.db", "--port", port)
    said = f"127.0.0.1:{port} cannot be listened on: Address already in use: choose another --port"
    assert code == 1 and said in err
    options = ("--registry", f"sqlite:///{tmp_path}/r.db", "--port", 0, "--host", "192.0.2.1")
    code, _, err = run("serve", *options)
    assert code == 1 and "choose a --host" in err and not (tmp_path / "r.db").exists()


def test_a_database_that_cannot_be_opened_is_named_with_the_reason(run, config, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path, reason in (
        ("nowhere/r.db", "cannot be created: No such file or directory"),
        ("file/r.db", "cannot be created: Not a directory"),
        ("folder", "cannot be opened: Is a directory"),
    ):
        code, _, err = run("serve", "--registry", f"sqlite:///{tmp_path}/{path}", "--port", 0)
        assert code == 1 and f"{tmp_path / path} {reason}" in err
