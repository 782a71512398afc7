"""Settings by the names of Kafka's own clients; secrets are nowhere to be read."""

import logging
import ssl

import pytest

from selectroute.kafka.config import SECRETS, SETTINGS, SettingError, client_settings, hide_secrets_from_logs
from tests.support.servers.certificates import PASSWORD, Authority

SECRET = "hunter2"
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
SSL = {"security.protocol": "SSL"}
USER = {"sasl.username": "u", "sasl.password": SECRET}
URL = "sasl.oauthbearer.token.endpoint.url"
OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", URL: "https://idp.example/token"}
EXTENSIONS = "sasl.oauthbearer.extensions"
CREDENTIALS = "sasl.oauthbearer.client.credentials.client"
CLIENT = {f"{CREDENTIALS}.id": "me", f"{CREDENTIALS}.secret": SECRET}


def test_nothing_given_is_a_plain_connection_with_our_defaults():
    made = client_settings({})
    assert made.connection_options() == {
        "security_protocol": "PLAINTEXT",
        "client_id": "selectroute",
        "receive_message_max_bytes": 256 << 20,
        "request_timeout_ms": 20_000,
    }
    assert (made.batch_bytes, made.compression) == (512 << 10, "none")
    assert (made.request_seconds, made.delivery_seconds, made.api_seconds) == (20, 20, 20)
    assert (made.transaction_seconds, made.isolation) == (60, "read_uncommitted")


@pytest.mark.parametrize(
    ("options", "attribute", "value"),
    [
        ({"isolation.level": "READ_COMMITTED"}, "isolation", "read_committed"),
        ({"batch.size": " 16384 "}, "batch_bytes", 16384),
        ({"batch.size": "2000000"}, "batch_bytes", 1 << 20),
        ({"max.request.size": "1000"}, "batch_bytes", 1000),
        ({"max.request.size": "9000000", "batch.size": "2000000"}, "batch_bytes", 2_000_000),
        ({"max.request.size": "9000000"}, "request_bytes", 9_000_000),
        ({"compression.type": "zstd"}, "compression", "zstd"),
        ({"request.timeout.ms": "1500"}, "request_seconds", 1.5),
        ({"delivery.timeout.ms": "45000"}, "delivery_seconds", 45),
        ({"request.timeout.ms": "200000"}, "delivery_seconds", 200),
        ({"request.timeout.ms": "200000"}, "api_seconds", 200),
        ({"request.timeout.ms": "1500"}, "api_seconds", 20),
        ({"default.api.timeout.ms": "8000"}, "api_seconds", 8),
        ({"transaction.timeout.ms": "900000"}, "transaction_seconds", 900),
    ],
)
def test_a_setting_is_an_attribute(options, attribute, value):
    assert getattr(client_settings(options), attribute) == value


@pytest.mark.parametrize(
    ("options", "argument", "value"),
    [
        ({"security.protocol": "plaintext"}, "security_protocol", "PLAINTEXT"),
        ({"client.id": " a b "}, "client_id", "a b"),
        ({"client.dns.lookup": "use_all_dns_ips"}, "client_dns_lookup", "use_all_dns_ips"),
        ({"request.timeout.ms": "1500"}, "request_timeout_ms", 1500),
        ({"reconnect.backoff.ms": "0"}, "reconnect_backoff_ms", 0),
        ({"reconnect.backoff.max.ms": "5"}, "reconnect_backoff_max_ms", 5),
        ({"connections.max.idle.ms": "1000"}, "connections_max_idle_ms", 1000),
        ({"socket.connection.setup.timeout.ms": "7"}, "socket_connection_setup_timeout_ms", 7),
        ({"socket.connection.setup.timeout.max.ms": "8"}, "socket_connection_setup_timeout_max_ms", 8),
        ({"selectroute.allow.plaintext.credentials": "true"}, "allow_plaintext_credentials", True),
        (PLAIN | USER, "sasl_plain_username", "u"),
        (PLAIN | USER | {"sasl.username": "a,="}, "sasl_plain_username", "a,="),
        (SCRAM | USER | {"sasl.username": "a,="}, "sasl_plain_username", "a=2C=3D"),
        (SCRAM | USER | {"sasl.password": "a,="}, "sasl_plain_password", "a,="),
        (PLAIN | USER | {"sasl.mechanism": "plain"}, "sasl_mechanism", "PLAIN"),
        ({"sasl.kerberos.service.name": "k"}, "sasl_kerberos_service_name", "k"),
    ],
)  # fmt: skip
def test_a_setting_is_an_argument_of_the_connections(options, argument, value):
    assert client_settings(options).client[argument] == value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "AWS_MSK_IAM"])
def test_every_argument_is_one_that_kafka_python_knows(mechanism, tmp_path):
    manager = pytest.importorskip("kafka.net.manager", reason="kafka-python is not installed")
    sasl = pytest.importorskip("kafka.net.sasl", reason="kafka-python is not installed")
    given = {name: "5" for name, (argument, _) in SETTINGS.items() if argument.endswith("_ms")}
    given |= {"client.dns.lookup": "use_all_dns_ips", "sasl.kerberos.service.name": "kafka", **USER, **CLIENT}
    given |= {"ssl.key.password": "p", "ssl.endpoint.identification.algorithm": "https"}
    options = client_settings(OAUTH | given | {"sasl.mechanism": mechanism}).connection_options()
    assert options.keys() <= manager.KafkaConnectionManager.DEFAULT_CONFIG.keys()
    assert sasl.get_sasl_mechanism(mechanism)(host="localhost", **options)


PEM = "JKS and PKCS12 are not read: name files in PEM by ssl.truststore.location"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch.sise": "1"}, "batch.sise is not a setting of this client: did you mean `batch.size`?"),
        ({"Batch.Size": "1"}, "Batch.Size is not a setting of this client: did you mean `batch.size`?"),
        ({"linger.ms": "1"}, "linger.ms is not a setting of this client; leave it out"),
        ({"MIIBhunter2Jk0w": "="}, "the settings have a line that is not `name=value`"),
        ({"batch.size\x1b[1m": "1"}, "batch.size�[1m is not a setting of this client: did you mean"),
        ({"batch.size": "64k"}, "batch.size must be a whole number from 0 to 2147483647"),
        ({"batch.size": "2147483648"}, "batch.size must be a whole number from 0 to 2147483647"),
        ({"request.timeout.ms": "0"}, "request.timeout.ms must be a whole number from 1"),
        ({"request.timeout.ms": "١"}, "request.timeout.ms must be a whole number from 1"),
        ({"request.timeout.ms": "9" * 5000}, "request.timeout.ms must be a whole number from 1"),
        ({"compression.type": SECRET}, "compression.type must be none, gzip, snappy, lz4 or zstd"),
        ({"isolation.level": ""}, "isolation.level must be read_uncommitted or read_committed"),
        (
            {"request.timeout.ms": "2000", "delivery.timeout.ms": "1000"},
            "delivery.timeout.ms must not be less than request.timeout.ms",
        ),
        ({"security.protocol": "TLS"}, "security.protocol must be PLAINTEXT, SSL, SASL_PLAINTEXT or"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing: set it to PLAIN, SCRAM-SHA-256,"),
        (SCRAM | {"sasl.mechanism": SECRET}, "sasl.mechanism must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "),
        (SCRAM | {"sasl.mechanism": "GSSAPI"}, "sasl.mechanism GSSAPI needs the Python package gssapi"),
        (SCRAM | {"sasl.password": SECRET}, "sasl.username is missing, which SCRAM-SHA-512 needs"),
        (SCRAM | {"sasl.username": "u"}, "sasl.password is missing, which SCRAM-SHA-512 needs"),
        (PLAIN | USER | {"sasl.password": f"{SECRET}\0"}, "sasl.username or sasl.password has a NUL"),
        (
            SCRAM | {"sasl.jaas.config": f"o.PlainLoginModule required password='{SECRET}';"},
            "sasl.jaas.config configures a Java class: write sasl.username and sasl.password instead",
        ),
        (OAUTH | CLIENT | {URL: ""}, f"{URL} must be a URL"),
        (OAUTH | CLIENT | {URL: f"http://idp.example/{SECRET}"}, f"{URL} must begin with https://"),
        (OAUTH, f"{CREDENTIALS}.id is missing"),
        (OAUTH | {f"{CREDENTIALS}.id": "me"}, f"{CREDENTIALS}.secret is missing"),
        (OAUTH | {EXTENSIONS: f"auth={SECRET}"}, f"{EXTENSIONS} must be NAME="),
        (OAUTH | {EXTENSIONS: f"a={SECRET}\x01"}, f"{EXTENSIONS} must be NAME="),
        (SSL | {"ssl.endpoint.identification.algorithm": "ldaps"},
         "ssl.endpoint.identification.algorithm must be https, or empty"),
        (SSL | {"ssl.truststore.type": "JKS"}, f"ssl.truststore.type must be PEM: {PEM}"),
        (SSL | {"ssl.keystore.type": "PKCS12"}, f"ssl.keystore.type must be PEM: {PEM}"),
        (SSL | {"ssl.truststore.password": SECRET}, f"ssl.truststore.password has no use: {PEM}"),
        (SSL | {"ssl.keystore.password": SECRET}, f"ssl.keystore.password has no use: {PEM}"),
        (SSL | {"ssl.truststore.location": f"/none/{SECRET}"},
         "ssl.truststore.location names a file that can't be read: No such file"),
        (SSL | {"ssl.keystore.location": f"{SECRET}\0"}, "ssl.keystore.location names a file that"),
        (SSL | {"ssl.ca.location": __file__, "ssl.truststore.location": __file__},
         "ssl.truststore.location and ssl.ca.location are both given"),
        (SSL | {"ssl.ca.location": __file__}, f"ssl.ca.location is not a file of certificates in PEM; {PEM}"),
        (SSL | {"ssl.keystore.location": __file__}, "ssl.keystore.location can't be loaded: the file"),
    ],
)  # fmt: skip
def test_other_settings_are_refused_in_one_sentence_without_their_value(options, sentence):
    with pytest.raises(SettingError) as raised:
        client_settings(options)
    assert str(raised.value).startswith(sentence) and "\n" not in str(raised.value)
    assert SECRET not in repr(raised.value)
    assert raised.value.__cause__ is None and (
        raised.value.__context__ is None or raised.value.__suppress_context__
    )


def test_oauth_is_an_endpoint_and_the_credentials_of_a_client():
    more = {"sasl.oauthbearer.scope": "s", EXTENSIONS: "b=2, a=1 x"}
    made = client_settings(OAUTH | CLIENT | more).oauth
    assert (made.url, made.client, made.secret, made.scope) == (OAUTH[URL], "me", SECRET, "s")
    assert made.extensions == (("b", "2"), ("a", "1 x"))


def test_connections_of_a_process_share_a_provider_of_tokens():
    oauth = pytest.importorskip("kafka.net.sasl.oauth", reason="kafka-python is not installed")
    first, second = (
        client_settings(OAUTH | CLIENT).connection_options()["sasl_oauth_token_provider"] for _ in range(2)
    )
    assert first is second and isinstance(first, oauth.AbstractTokenProvider)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def own(authority):
    return authority.issue("client")


class TestTls:
    def context(self, **options):
        given = {"ssl." + name.replace("_", "."): str(value) for name, value in options.items()}
        return client_settings(SSL | given).connection_options()["ssl_context"]

    def test_without_certificates_those_of_the_system_are_trusted_and_hosts_are_checked(self):
        context = self.context()
        assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2

    @pytest.mark.parametrize("name", ["truststore_location", "ca_location"])
    def test_trusted_certificates_are_read_from_a_file(self, authority, name):
        context = self.context(**{name: authority.file}, truststore_type="pem")
        assert len(context.get_ca_certs()) == 1 and context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN

    @pytest.mark.parametrize("key", ["key", "locked"])
    def test_the_key_is_with_the_certificate_or_in_a_file_of_its_own(self, own, tmp_path, key):
        both, certificate, alone = (tmp_path / name for name in ("both", "certificate", "key"))
        both.write_text(own.certificate + getattr(own, key))
        certificate.write_text(own.certificate)
        alone.write_text(getattr(own, key))
        assert self.context(keystore_location=both, key_password=PASSWORD)
        assert self.context(certificate_location=certificate, key_location=alone, key_password=PASSWORD)

    @pytest.mark.parametrize("password", [None, "", "wrong"])
    def test_a_wrong_password_of_a_key_is_said_and_never_asked_for(self, own, tmp_path, password):
        store = tmp_path / "store.pem"
        store.write_text(own.certificate + own.locked)
        given = {} if password is None else {"key_password": password}
        with pytest.raises(SettingError, match=r"ssl\.keystore\.location can't be loaded: .*ssl\.key\.pass"):
            self.context(keystore_location=store, **given)

    def test_an_empty_algorithm_leaves_out_the_check_of_the_host_only(self):
        context = self.context(endpoint_identification_algorithm="")
        assert not context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED


def test_settings_show_no_secret():
    secrets = dict.fromkeys(SECRETS, SECRET)
    for login in (OAUTH, PLAIN):
        made = client_settings({"sasl.username": "u", f"{CREDENTIALS}.id": "me", **secrets, **login})
        assert SECRET not in f"{made!r} {made} {made.oauth!r}"


def test_logs_of_requests_are_off_however_low_the_levels_are(caplog):
    connection = logging.getLogger("kafka.net.connection")
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "kafka.net.connection"):
        hide_secrets_from_logs()
        levels = [
            logging.getLogger(name).getEffectiveLevel()
            for name in ("kafka", "kafka.net.connection", "kafka.protocol.parser", "kafka.net.transport")
        ]
        connection.debug("password")
    assert levels == [logging.INFO] * 4 and not caplog.records
    with caplog.at_level(logging.ERROR, "kafka"):
        hide_secrets_from_logs()
        assert logging.getLogger("kafka").level == logging.ERROR
