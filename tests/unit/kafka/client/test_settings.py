"""Settings of Kafka's own clients, translated; secrets are nowhere to be read."""

from __future__ import annotations

import logging
import pickle
import re
import socket
import ssl

import pytest

from selectroute.kafka.client import oauth, tls
from selectroute.kafka.client.settings import (
    ClientSettings,
    SettingError,
    client_settings,
    hide_secrets_from_logs,
)
from tests.support.servers.certificates import PASSWORD, Authority

SECRET = "hunter2"
PACKAGE = "org.apache.kafka.common.security"
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
SSL = {"security.protocol": "SSL"}
USER = {"sasl.username": "u", "sasl.password": SECRET}
URL = "sasl.oauthbearer.token.endpoint.url"
OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    URL: "https://idp.example/token",
}
CREDENTIALS = "sasl.oauthbearer.client.credentials.client"
CLIENT = {f"{CREDENTIALS}.id": "me", f"{CREDENTIALS}.secret": SECRET}
SCRAM_MODULE = "scram.ScramLoginModule"
OAUTH_MODULE = "oauthbearer.OAuthBearerLoginModule"


def jaas(module, **options):
    given = " ".join(f'{name}="{value}"' for name, value in options.items())
    return {"sasl.jaas.config": f"{PACKAGE}.{module} required {given};"}


def copied(one):
    return pickle.loads(pickle.dumps(one))  # noqa: S301 - what this test pickled itself


def test_nothing_given_is_a_plain_connection_with_our_defaults():
    made = client_settings({})
    assert made.client["security_protocol"] == "PLAINTEXT" and made.client["client_id"] == "selectroute"
    assert (made.batch_bytes, made.compression) == (512 << 10, "none")
    assert (made.request_seconds, made.delivery_seconds, made.api_seconds) == (20, 20, 20)
    assert made.transaction_seconds == 60
    assert made.ssl_context() is None and made.ignored == ()
    assert made.isolation == "read_uncommitted"


@pytest.mark.parametrize(
    ("options", "attribute", "value"),
    [
        ({"fetch.max.wait.ms": "500", "max.partition.fetch.bytes": "2000", "fetch.min.bytes": "1"}, "ignored",
         ("fetch.max.wait.ms", "fetch.min.bytes", "max.partition.fetch.bytes")),
        ({"fetch.max.bytes": "1000"}, "ignored", ("fetch.max.bytes",)),
        ({"fetch.max.bytes": str(255 << 20)}, "ignored", ("fetch.max.bytes",)),
        ({"fetch.max.bytes": str((255 << 20) + 1)}, "ignored", ()),
        ({"metadata.max.age.ms": "9"}, "ignored", ("metadata.max.age.ms",)),
        ({"isolation.level": "READ_COMMITTED"}, "isolation", "read_committed"),
        ({"batch.size": "16384"}, "batch_bytes", 16384),
        ({"batch.size": "0"}, "batch_bytes", 0),
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
        ({"acks": "-1", "enable.idempotence": "TRUE"}, "ignored", ()),
        ({"linger.ms": "5", "buffer.memory": "x", "max.poll.records": "1"}, "ignored",
         ("buffer.memory", "linger.ms", "max.poll.records")),
        ({"sasl.kerberos.service.name": "kafka"}, "ignored", ("sasl.kerberos.service.name",)),
        ({"ssl.truststore.location": "none", "sasl.jaas.config": "x"}, "ignored",
         ("sasl.jaas.config", "ssl.truststore.location")),
        ({**PLAIN, **USER, "sasl.oauthbearer.scope": "s"}, "ignored", ("sasl.oauthbearer.scope",)),
        ({"partitioner.class": "", "interceptor.classes": " "}, "ignored", ()),
    ],
)  # fmt: skip
def test_a_setting_is_an_attribute(options, attribute, value):
    assert getattr(client_settings(options), attribute) == value


@pytest.mark.parametrize(
    ("options", "argument", "value"),
    [
        ({"security.protocol": "ssl"}, "security_protocol", "SSL"),
        ({"client.id": " a b "}, "client_id", "a b"),
        ({"client.dns.lookup": "use_all_dns_ips"}, "client_dns_lookup", "use_all_dns_ips"),
        ({"request.timeout.ms": "1500"}, "request_timeout_ms", 1500),
        ({"reconnect.backoff.ms": "0"}, "reconnect_backoff_ms", 0),
        ({"reconnect.backoff.max.ms": "5"}, "reconnect_backoff_max_ms", 5),
        ({"connections.max.idle.ms": "1000"}, "connections_max_idle_ms", 1000),
        ({"connections.max.idle.ms": "-1"}, "connections_max_idle_ms", (1 << 31) - 1),
        ({"socket.connection.setup.timeout.ms": "7"}, "socket_connection_setup_timeout_ms", 7),
        ({"socket.connection.setup.timeout.max.ms": "8"}, "socket_connection_setup_timeout_max_ms", 8),
        ({"max.in.flight.requests.per.connection": "1"}, "max_in_flight_requests_per_connection", 1),
        ({}, "receive_message_max_bytes", 256 << 20),
        ({"fetch.max.bytes": str(1 << 30)}, "receive_message_max_bytes", (1 << 30) + (1 << 20)),
        ({"fetch.max.bytes": str((1 << 31) - 1)}, "receive_message_max_bytes", (1 << 31) - 1),
    ],
)
def test_a_setting_is_an_argument_of_the_connections(options, argument, value):
    assert client_settings(options).client[argument] == value


def test_every_argument_is_one_that_kafka_python_knows():
    manager = pytest.importorskip("kafka.net.manager", reason="kafka-python is not installed")
    options = dict.fromkeys(
        ("client.dns.lookup",), "use_all_dns_ips"
    ) | dict.fromkeys(
        (
            "connections.max.idle.ms", "max.in.flight.requests.per.connection",
            "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms",
            "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
        ),
        "5",
    )  # fmt: skip
    for login in (PLAIN | USER, SCRAM | USER, OAUTH | CLIENT):
        given = client_settings(options | login).connection_options()
        assert given.keys() <= manager.KafkaConnectionManager.DEFAULT_CONFIG.keys()


def test_sizes_of_socket_buffers_are_options_of_the_socket():
    options = client_settings({"send.buffer.bytes": "-1", "receive.buffer.bytes": "65536"}).client
    assert options["socket_options"] == [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, 65536),
    ]


PEM = "-----BEGIN {0}----- hunter2 -----END {0}-----"
NOT_WHOLE = "must be a whole number from"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch.sise": "1"}, "batch.sise is not a setting of Kafka's clients: did you mean `batch.size`?"),
        (
            {"Security.Protocol": "SSL"},
            "Security.Protocol is not a setting of Kafka's clients: did you mean `security.protocol`?",
        ),
        ({"zzz": "1"}, "zzz is not a setting of Kafka's clients"),
        ({"MIIBhunter2Jk0w": "="}, "a name in the settings is not one of Kafka's clients, nor like one"),
        ({"kafka.\x1b[1m": "1"}, "a name in the settings is not one of Kafka's clients, nor like one"),
        ({"fetch.max.bytes\x1b[1m": "1"}, "fetch.max.bytes�[1m is not a setting of Kafka's clients: did"),
        ({"bootstrap.servers": "h:1"}, "bootstrap.servers is not allowed: the servers are given apart"),
        ({"group.id": "g"}, "group.id is not allowed: the job sets it itself"),
        ({"key.serializer": "x"}, "key.serializer is not allowed: the job sets it itself"),
        ({"auto.offset.reset": "latest"}, "auto.offset.reset is not allowed: the job sets it itself"),
        ({"transactional.id": "t"}, "transactional.id is not allowed: the job sets it itself"),
        ({"acks": "1"}, "acks must be 'all', or committed deliveries could be lost"),
        (
            {"enable.idempotence": "false"},
            "enable.idempotence must be 'true', or committed deliveries could be lost",
        ),
        ({"config.providers": "file"}, "config.providers is not allowed: values are taken as they stand"),
        (
            {"config.providers.file.class": "x"},
            "config.providers.file.class is not allowed: values are taken",
        ),
        ({"interceptor.classes": "a.B"}, "interceptor.classes is not allowed: this client is not Java"),
        (
            {"partitioner.class": "a.RoundRobinPartitioner"},
            "partitioner.class is not allowed: this client is not Java",
        ),
        (
            {"sasl.login.callback.handler.class": "a.B"},
            "sasl.login.callback.handler.class is not allowed: this client is not Java",
        ),
        ({"sasl.client.callback.handler.class": "a.B"}, "sasl.client.callback.handler.class is not allowed"),
        ({"ssl.engine.factory.class": "a.B"}, "ssl.engine.factory.class is not allowed"),
        (
            {"ssl.cipher.suites": "TLS_X"},
            "ssl.cipher.suites is not allowed: restrict the suites at the broker",
        ),
        (
            {"sasl.oauthbearer.assertion.file": "f"},
            "sasl.oauthbearer.assertion.file is not allowed: tokens are",
        ),
        ({"batch.size": "64k"}, f"batch.size {NOT_WHOLE} 0 to 2147483647"),
        ({"fetch.max.bytes": "2147483648"}, f"fetch.max.bytes {NOT_WHOLE} 1 to 2147483647"),
        ({"request.timeout.ms": "1.5"}, f"request.timeout.ms {NOT_WHOLE} 1"),
        ({"request.timeout.ms": "١"}, f"request.timeout.ms {NOT_WHOLE} 1"),
        ({"request.timeout.ms": "9" * 5000}, f"request.timeout.ms {NOT_WHOLE} 1"),
        (
            {"max.in.flight.requests.per.connection": "6"},
            "max.in.flight.requests.per.connection must be a whole number from 1 to 5",
        ),
        ({"send.buffer.bytes": "-2"}, f"send.buffer.bytes {NOT_WHOLE} -1"),
        ({"compression.type": "brotli"}, "compression.type must be none, gzip, snappy, lz4 or zstd"),
        ({"isolation.level": ""}, "isolation.level must be read_uncommitted or read_committed"),
        ({"client.dns.lookup": "x"}, "client.dns.lookup must be use_all_dns_ips or"),
        (
            {"request.timeout.ms": "2000", "delivery.timeout.ms": "1000"},
            "delivery.timeout.ms must not be less than request.timeout.ms",
        ),
        (
            {"security.protocol": "TLS"},
            "security.protocol must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        ),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing: set it to PLAIN, SCRAM-SHA-256,"),
        (SCRAM | {"sasl.mechanism": "GSSAPI"}, "sasl.mechanism GSSAPI is not supported: it must be PLAIN,"),
        (
            SCRAM | {"sasl.mechanism": "AWS_MSK_IAM"},
            "sasl.mechanism AWS_MSK_IAM is not supported: it must be",
        ),
        (
            SCRAM | {"sasl.mechanism": SECRET},
            "sasl.mechanism must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
        ),
        (SCRAM, "sasl.username has no user name, which SCRAM-SHA-512 needs"),
        (SCRAM | {"sasl.username": "u"}, "sasl.password has no password"),
        (PLAIN | {"sasl.username": "u\0", "sasl.password": SECRET}, "sasl.username has a NUL character"),
        (SCRAM | USER | jaas(SCRAM_MODULE), "sasl.username and sasl.jaas.config are both given"),
        (
            SCRAM | jaas("plain.PlainLoginModule", username="u", password=SECRET),
            "sasl.jaas.config must have the login module ScramLoginModule, which SCRAM-SHA-512 needs",
        ),
        (SCRAM | jaas(SECRET), "sasl.jaas.config must have the login module ScramLoginModule"),
        (SCRAM | jaas(SCRAM_MODULE, username="u"), "sasl.jaas.config has no password"),
        (SCRAM | jaas(SCRAM_MODULE, password=SECRET), "sasl.jaas.config has no user name"),
        (
            SCRAM | jaas(SCRAM_MODULE, username="u", password="p", hunter2="x"),
            "sasl.jaas.config has an option that is not supported: ScramLoginModule has username or password",
        ),
        (
            SCRAM | jaas(SCRAM_MODULE, username="u", password="p", extension_a="x"),
            "sasl.jaas.config has an option that is not supported",
        ),
        ({**OAUTH, URL: ""}, f"{URL} is missing"),
        ({**OAUTH, **CLIENT, URL: f"http://idp.example/{SECRET}"}, f"{URL} must begin with https://"),
        (OAUTH, f"{CREDENTIALS}.id is missing"),
        (OAUTH | {f"{CREDENTIALS}.id": "me"}, f"{CREDENTIALS}.secret is missing"),
        (OAUTH | USER, "sasl.username does not apply to OAUTHBEARER"),
        (
            OAUTH | jaas(OAUTH_MODULE, clientId="me", clientSecret=SECRET, unsecuredLoginStringClaim_sub="x"),
            "sasl.jaas.config has an option that is not supported: OAuthBearerLoginModule has clientId,",
        ),
        (
            OAUTH | jaas(OAUTH_MODULE, clientId="me", clientSecret=SECRET, extension_auth=SECRET),
            "sasl.jaas.config has an extension that is not valid",
        ),
        (
            OAUTH | jaas(OAUTH_MODULE, clientId="me", clientSecret=SECRET, extension_a=SECRET + "\u00e9"),
            "sasl.jaas.config has an extension that is not valid",
        ),
        (
            OAUTH | CLIENT | {"sasl.login.read.timeout.ms": "soon"},
            f"sasl.login.read.timeout.ms {NOT_WHOLE} 1",
        ),
        (
            {**SSL, "ssl.endpoint.identification.algorithm": "ldaps"},
            "ssl.endpoint.identification.algorithm must be https, or empty",
        ),
        (
            {**SSL, "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"},
            "ssl.enabled.protocols must be TLSv1.2 or TLSv1.3, or both",
        ),
        ({**SSL, "ssl.truststore.type": "BKS"}, "ssl.truststore.type must be PEM, JKS or PKCS12"),
        (
            {**SSL, "ssl.truststore.location": f"/none/{SECRET}"},
            "ssl.truststore.location names a file that can't be read: No such file",
        ),
        (
            {**SSL, "ssl.keystore.location": f"{SECRET}\0"},
            "ssl.keystore.location names a file that can't be read",
        ),
        ({**SSL, "ssl.truststore.location": "/"}, "ssl.truststore.location names a file that can't be read"),
        (
            {**SSL, "ssl.truststore.certificates": SECRET},
            "ssl.truststore.certificates has no certificate in PEM",
        ),
        (
            {
                **SSL,
                "ssl.truststore.certificates": PEM.format("CERTIFICATE"),
            },
            "ssl.truststore.certificates has a certificate that is not valid",
        ),
        (
            {**SSL, "ssl.truststore.certificates": "x", "ssl.truststore.location": "y"},
            "ssl.truststore.location and ssl.truststore.certificates are both given",
        ),
        (
            {**SSL, "ssl.truststore.certificates": "x", "ssl.truststore.password": SECRET},
            "ssl.truststore.password does not apply to certificates in PEM",
        ),
        (
            {**SSL, "ssl.keystore.key": PEM.format("PRIVATE KEY")},
            "ssl.keystore.key needs ssl.keystore.certificate.chain",
        ),
        (
            {**SSL, "ssl.keystore.certificate.chain": SECRET},
            "ssl.keystore.certificate.chain has no certificate in PEM",
        ),
        (
            {
                **SSL,
                "ssl.keystore.certificate.chain": PEM.format("CERTIFICATE"),
            },
            "ssl.keystore.key has no private key in PEM",
        ),
    ],
)
def test_other_settings_are_refused_in_one_sentence_without_their_value(options, sentence):
    with pytest.raises(SettingError) as raised:
        client_settings(options)
    assert str(raised.value).startswith(sentence) and "\n" not in str(raised.value)
    assert raised.value.setting in (sentence.split(" ")[0], "a name")
    assert SECRET not in repr(raised.value)
    assert raised.value.__cause__ is None and (
        raised.value.__context__ is None or raised.value.__suppress_context__
    )
    assert str(copied(raised.value)) == str(raised.value)


@pytest.mark.parametrize(
    ("options", "user", "password"),
    [
        (PLAIN | USER, "u", SECRET),
        (SCRAM | USER, "u", SECRET),
        ({**PLAIN, "sasl.mechanism": "plain", **USER}, "u", SECRET),
        (PLAIN | jaas("plain.PlainLoginModule", username="u,=", password=r"a\"b\\c;"), "u,=", r'a"b\c;'),
        (SCRAM | jaas(SCRAM_MODULE, username="u,=", password="a,="), "u=2C=3D", "a,="),
        (SCRAM | {"sasl.jaas.config": "shaded.ScramLoginModule required username=u password='p';"}, "u", "p"),
    ],
)
def test_a_login_is_user_and_password(options, user, password):
    client = client_settings(options).client
    assert (client["sasl_plain_username"], client["sasl_plain_password"]) == (user, password)
    assert client["sasl_mechanism"] == options["sasl.mechanism"].upper()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (CLIENT, {}),
        (
            {**CLIENT, "sasl.oauthbearer.scope": "s", "sasl.oauthbearer.header.urlencode": "true"},
            {"scope": "s", "quoted": True},
        ),
        (
            {
                **CLIENT,
                "sasl.login.callback.handler.class": f"{PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
            },
            {},
        ),
        (
            {
                **CLIENT,
                "sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.ClientCredentialsJwtRetriever",
            },
            {},
        ),
        (
            {**CLIENT, "sasl.login.connect.timeout.ms": "100", "sasl.login.read.timeout.ms": "1500"},
            {"seconds": 1.5},
        ),
        (
            jaas(
                OAUTH_MODULE, clientId="me", clientSecret=SECRET, scope="s", extension_b="2", extension_a="1"
            ),
            {"scope": "s", "extensions": (("a", "1"), ("b", "2"))},
        ),
        (CLIENT | jaas(OAUTH_MODULE, clientId="other", clientSecret="other"), {}),
    ],
)
def test_oauth_is_an_endpoint_and_the_credentials_of_a_client(options, expected):
    made = client_settings(OAUTH | options).oauth
    assert made == oauth.ClientCredentials("https://idp.example/token", "me", SECRET, **expected)


def test_connections_of_a_process_share_a_provider_of_tokens():
    oauth = pytest.importorskip("kafka.net.sasl.oauth", reason="kafka-python is not installed")
    made = client_settings(OAUTH | CLIENT)
    first, second = (copied(made).connection_options()["sasl_oauth_token_provider"] for _ in range(2))
    assert first is second and isinstance(first, oauth.AbstractTokenProvider)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def own(authority):
    return authority.issue("client")


class TestTls:
    def of(self, **options):
        given = {"ssl." + name.replace("_", "."): value for name, value in options.items()}
        return client_settings({"security.protocol": "SSL"} | given)

    def test_without_certificates_those_of_the_system_are_trusted_and_hosts_are_checked(self):
        context = self.of().ssl_context()
        assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert not context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN

    @pytest.mark.parametrize("kind", ["PEM", "JKS"])
    def test_trusted_certificates_are_read_from_a_file(self, authority, kind):
        made = self.of(truststore_type=kind, truststore_location=str(authority.file))
        assert len(made.ssl_context().get_ca_certs()) == 1

    @pytest.mark.parametrize("join", ["\n", " ", "", "\r\n"])
    def test_certificates_and_keys_stand_in_the_settings_with_or_without_line_ends(
        self, authority, own, join
    ):
        def one_line(text):
            return re.sub(r"(?<!-)\n(?!-)|\n", lambda _: join, text)

        made = self.of(
            truststore_certificates=one_line(authority.certificate * 2),
            keystore_certificate_chain=one_line(own.certificate),
            keystore_key=one_line(own.key),
        )
        assert len(made.ssl_context().get_ca_certs()) == 1

    @pytest.mark.parametrize("key", ["key", "locked"])
    def test_a_key_store_is_a_file_of_key_and_certificates(self, own, tmp_path, key):
        store = tmp_path / "store.pem"
        store.write_text(own.certificate + getattr(own, key))
        made = self.of(keystore_location=str(store), key_password=PASSWORD)
        assert copied(made).ssl_context() is not None
        assert PASSWORD not in repr(made) and "-----" not in repr(made)

    @pytest.mark.parametrize("password", [None, "", "wrong"])
    def test_a_wrong_password_of_a_key_is_said_and_never_asked_for(self, own, tmp_path, password):
        store = tmp_path / "store.pem"
        store.write_text(own.certificate + own.locked)
        given = {} if password is None else {"key_password": password}
        with pytest.raises(SettingError, match=r"ssl\.keystore\.location can't be loaded: .*ssl\.key\.pass"):
            self.of(keystore_location=str(store), **given)

    def test_a_key_of_another_certificate_is_said(self, authority, own):
        other = authority.issue("other")
        with pytest.raises(SettingError, match=r"ssl\.keystore\.certificate\.chain can't be loaded: the key"):
            self.of(keystore_certificate_chain=own.certificate, keystore_key=other.key)

    def test_a_key_without_memory_for_it_is_read_from_a_file_that_is_removed(
        self, own, tmp_path, monkeypatch
    ):
        monkeypatch.delattr(tls.os, "memfd_create", raising=False)
        monkeypatch.setattr(tls.tempfile, "tempdir", str(tmp_path))
        assert self.of(keystore_certificate_chain=own.certificate, keystore_key=own.key).ssl_context()
        assert not list(tmp_path.iterdir())

    def test_no_descriptor_is_left_open(self, own):
        before = len(list(tls.Path("/proc/self/fd").iterdir())) if tls.Path("/proc/self/fd").is_dir() else 0
        self.of(keystore_certificate_chain=own.certificate, keystore_key=own.key).ssl_context()
        after = len(list(tls.Path("/proc/self/fd").iterdir())) if before else 0
        assert after == before

    @pytest.mark.parametrize(
        ("start", "kind", "command"),
        [
            (b"\xfe\xed\xfe\xed", "JKS", "keytool -importkeystore"),
            (b"\x30\x82", "PKCS12", "openssl pkcs12 -in FILE -out keys.pem"),
        ],
    )
    def test_a_store_of_java_is_refused_with_the_command_that_converts_it(
        self, tmp_path, start, kind, command
    ):
        store = tmp_path / "store"
        store.write_bytes(start + bytes(100))
        with pytest.raises(SettingError, match=f"ssl.keystore.location is a {kind} store.*{command}"):
            self.of(keystore_location=str(store), keystore_password=SECRET)
        with pytest.raises(
            SettingError, match=f"ssl.truststore.location is a {kind} store.*keytool -list -rfc"
        ):
            self.of(truststore_location=str(store), truststore_type="PEM")

    def test_a_large_file_is_refused(self, tmp_path):
        store = tmp_path / "store"
        with store.open("wb") as file:
            file.truncate((8 << 20) + 1)
        with pytest.raises(SettingError, match=r"ssl\.truststore\.location names a file that is larger than"):
            self.of(truststore_location=str(store))

    @pytest.mark.parametrize(
        ("given", "oldest", "newest"),
        [
            ("TLSv1.2", "TLSv1_2", "TLSv1_2"),
            ("TLSv1.3", "TLSv1_3", "TLSv1_3"),
            (" TLSv1.3, TLSv1.2", "TLSv1_2", "TLSv1_3"),
        ],
    )
    def test_versions_are_limited(self, given, oldest, newest):
        context = self.of(enabled_protocols=given).ssl_context()
        assert context.minimum_version == ssl.TLSVersion[oldest]
        assert context.maximum_version == ssl.TLSVersion[newest]

    def test_an_empty_algorithm_leaves_out_the_check_of_the_host_only(self):
        context = self.of(endpoint_identification_algorithm="").ssl_context()
        assert not context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED

    def test_the_token_endpoint_has_trusted_certificates_of_its_own(self, authority):
        login = {
            "sasl.jaas.config": f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required clientId='me' "
            f"clientSecret='{SECRET}' ssl.truststore.location='{authority.file}';"
        }
        made = client_settings(OAUTH | login)
        assert made.tls.trusted == "" and made.oauth.tls.trusted == authority.certificate


@pytest.mark.parametrize(
    "options",
    [
        PLAIN | USER,
        SCRAM | jaas(SCRAM_MODULE, username="u", password=SECRET),
        OAUTH | CLIENT,
        OAUTH | jaas(OAUTH_MODULE, clientId="c", clientSecret=SECRET, extension_a=SECRET),
        {**SSL, "ssl.key.password": SECRET},
    ],
)
def test_settings_show_no_secret_and_can_be_pickled(options):
    made = client_settings(options)
    for shown in (repr(made), str(made), f"{made.tls!r} {made.oauth!r}"):
        assert SECRET not in shown
    other = copied(made)
    assert other == made and isinstance(other, ClientSettings)


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
