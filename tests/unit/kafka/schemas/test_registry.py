import pickle

import pytest

from selectroute.kafka import SchemaRegistry, SchemaSettingsError

URL = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    "url", ["http://a", "https://a:8081/path", "http://a:1, https://b", "http://[::1]:1"]
)
def test_a_registry_has_one_url_or_several(url):
    assert SchemaRegistry(url).url == url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "must be https://host or http://host, not ''"),
        ("a:8081", "must be https://host or http://host, not 'a:8081'"),
        ("ftp://a", "must be"),
        ("http://", "must be"),
        ("http://a,", "must be"),
        ("http://a:x", "is not valid"),
        ("http://[::1", "is not valid"),
        ("https://me:hunter2@a", "may not contain a password: write basic.auth.user.info"),
    ],
)
def test_other_urls_are_a_sentence_without_a_password(url, said):
    with pytest.raises(SchemaSettingsError) as error:
        SchemaRegistry(url)
    assert said in str(error.value) and "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"basic.auth.user.inf": "hunter2"}, "no setting 'basic.auth.user.inf': did you mean `basic.auth.us"),
        ({"ssl.protocol": "hunter2"}, "has no setting 'ssl.protocol'"),
        ({"timeout": "hunter2"}, "timeout of a schema registry must be a number"),
        ({"timeout": "nan"}, "timeout of a schema registry must be a number"),
        ({"max.retries": "-1"}, "max.retries of a schema registry must be a number"),
        ({"max.retries": 1}, "max.retries of a schema registry must be a number"),
        ({"proxy": None}, "proxy of a schema registry must be text"),
        ({"bearer.auth.token": "hunter2", "basic.auth.user.info": "a:b"}, "or a token, not both"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_and_never_shown(options, said):
    with pytest.raises(SchemaSettingsError) as error:
        SchemaRegistry(URL, options)
    assert said in str(error.value) and "hunter2" not in str(error.value)


def test_a_policy_is_wait_or_dead_letter():
    with pytest.raises(SchemaSettingsError, match="wait or dead-letter, not 'skip'"):
        SchemaRegistry(URL, {}, "skip")


def test_settings_are_pickled_and_not_shown():
    registry = SchemaRegistry(URL, {"basic.auth.user.info": "me:hunter2"}, "dead-letter")
    again = pickle.loads(pickle.dumps(registry))  # noqa: S301  our own
    assert again == registry and hash(again) == hash(registry)
    assert "hunter2" not in repr(registry) and "hunter2" not in str(registry)
    assert registry != SchemaRegistry(URL, {"basic.auth.user.info": "me:other"}, "dead-letter")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"basic.auth.user.info": "hunter2"}, "not valid (basic.auth.user.info)"),
        ({"bearer.auth.credentials.source": "hunter2"}, "not valid (bearer.auth.credentials.source)"),
        ({"bearer.auth.credentials.source": "OAUTHBEARER", "proxy": "hunter2"}, "not valid (bearer."),
        ({"ssl.ca.location": "/no/such/file"}, "the file of ssl.ca.location does not exist: '/no/such/file'"),
        ({"ssl.ca.location": "{own}"}, "not valid"),
        ({"ssl.key.location": "{own}"}, "not valid (ssl.certificate.location"),
        ({"proxy": "hunter2://x"}, "not valid (ValueError)"),
    ],
)  # fmt: skip
def test_what_the_client_rejects_is_a_sentence_that_shows_no_value(options, said):
    pytest.importorskip("confluent_kafka.schema_registry")
    own = {name: value.format(own=__file__) for name, value in options.items()}
    with pytest.raises(SchemaSettingsError) as error:
        SchemaRegistry(URL, own).client()
    assert said in str(error.value) and "hunter2" not in str(error.value)
