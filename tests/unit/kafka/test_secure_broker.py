"""Connections by `ClientSettings` to a real broker with TLS and SASL, and the errors of wrong ones."""

import base64
import json
import tempfile
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytest.importorskip("kafka.net.manager", reason="kafka-python is not installed (the extra `kafka`)")
pytest.importorskip("pyspark", reason="PySpark, whose Ivy fetches a broker, is not installed")
pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (the extra `kafka`)")

from kafka.errors import (
    InvalidReceiveError,
    KafkaConnectionError,
    SaslAuthenticationFailedError,
    for_code,
)
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest

from selectroute.kafka.cluster import _Manager
from selectroute.kafka.config import TokenError, client_settings
from selectroute.spark import JavaError
from selectroute.testing.broker import Broker, BrokerError
from selectroute.testing.jars import JarError
from tests.support.components import KAFKA, missing
from tests.support.servers.certificates import PASSWORD, Authority

pytestmark = [pytest.mark.nightly, *KAFKA]

PACKAGE = "org.apache.kafka.common.security"
USERS = {"plain": 'p"l;a\\in', "al,i=ce": "s3cret=,", "bob": "b0b"}
TOKEN_SECRET = "token-secret"


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def in_properties(text):
    """Return a value as a Java properties file has it."""
    return text.replace("\\", "\\\\")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority):
    server = authority.issue("broker", "DNS:localhost")
    with tempfile.TemporaryDirectory(prefix="selectroute-secure-", ignore_cleanup_errors=True) as folder:
        keys = Path(folder) / "keys.pem"
        keys.write_text(server.both)
        own = Path(folder) / "broker"
        own.mkdir()
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keys,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority.file,
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": in_properties(
                f"{PACKAGE}.plain.PlainLoginModule required user_plain={quoted(USERS['plain'])};"
            ),
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
                f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required;"
            ),
            "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": (
                f"{PACKAGE}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
            ),
        }
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            name = f"listener.name.sasl_ssl.{mechanism}.sasl.jaas.config"
            settings[name] = f"{PACKAGE}.scram.ScramLoginModule required;"
        try:
            started = Broker(own, settings, secure=("SASL_SSL", "SSL"))
            started.start()
        except (BrokerError, JarError, JavaError) as error:
            missing(f"Kafka cannot be had here: {error}")
        try:
            add_scram_users(started)
            yield started
        finally:
            started.stop()


def add_scram_users(broker):
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": broker.address})
    # A user is changed once in a request.
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = ScramCredentialInfo(mechanism, 4096)
        changes = [
            UserScramCredentialUpsertion(name, credential, USERS[name].encode())
            for name in ("al,i=ce", "bob")
        ]
        for answer in admin.alter_user_scram_credentials(changes).values():
            answer.result(60)


def topics(address, options):
    """Ask a broker for its topics over a new connection; return their names."""
    net = NetworkSelector(slow_task_threshold_secs=0)
    given = client_settings(options).connection_options()
    manager = _Manager(net, bootstrap_servers=address, **given)
    try:
        node = manager.cluster.bootstrap_brokers()[0].node_id
        connection = manager.get_connection(node, refresh_metadata_on_err=False)
        net.poll(20_000, connection.init_future)
        assert connection.init_future.is_done
        if connection.init_future.exception is not None:
            raise connection.init_future.exception
        asked = manager.send(MetadataRequest(topics=None, allow_auto_topic_creation=False), node)
        net.poll(20_000, asked)
        assert asked.is_done
        if asked.exception is not None:
            raise asked.exception
        for topic in asked.value.topics:
            assert for_code(topic.error_code).errno == 0
        return {topic.name for topic in asked.value.topics}
    finally:
        manager.close()
        net.close()


@pytest.fixture(scope="module")
def topic(broker):
    return broker.create("secured")


@pytest.fixture
def trusting(authority):
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.file)}


def sasl(mechanism, username, password):
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": username,
        "sasl.password": password,
    }


def scram(mechanism="SCRAM-SHA-512", username="al,i=ce", password=None):
    return sasl(mechanism, username, USERS[username] if password is None else password)


@pytest.mark.parametrize("user", ["bob", "al,i=ce"])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_over_tls(broker, topic, trusting, mechanism, user):
    assert topic in topics(broker.secure["SASL_SSL"], trusting | scram(mechanism, user))


def test_plain_over_tls(broker, topic, trusting):
    login = sasl("PLAIN", "plain", USERS["plain"])
    assert topic in topics(broker.secure["SASL_SSL"], trusting | login)


@pytest.mark.parametrize("key", ["key", "locked"])
def test_tls_with_a_certificate_of_the_client(broker, topic, trusting, authority, key, tmp_path):
    own = authority.issue(f"client-{key}")
    store = tmp_path / "store.pem"
    store.write_text(own.certificate + getattr(own, key))
    settings = {"security.protocol": "SSL", "ssl.keystore.location": str(store), "ssl.key.password": PASSWORD}
    assert topic in topics(broker.secure["SSL"], trusting | settings)


@contextmanager
def token_endpoint():
    """Give tokens that are not signed, which the broker of these tests accepts, to whoever has the secret."""
    expected = "Basic " + base64.b64encode(f"me:{TOKEN_SECRET}".encode()).decode()
    asked = []

    def part(**claims):
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            now = time.time()
            token = f"{part(alg='none')}.{part(sub='me', iat=now, exp=now + 600)}."
            known = self.headers["Authorization"] == expected
            answer = {"access_token": token, "expires_in": 600} if known else {"error": "invalid_client"}
            body = json.dumps(answer).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def oauth(url, secret):
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": secret,
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "cluster=one",
    }


def test_oauthbearer_over_tls_with_one_token_for_two_connections(broker, topic, trusting):
    with token_endpoint() as (url, asked):
        for _ in range(2):
            assert topic in topics(broker.secure["SASL_SSL"], trusting | oauth(url, TOKEN_SECRET))
    assert asked == [b"grant_type=client_credentials&scope=kafka"]


def test_a_token_endpoint_that_refuses_is_named(broker, trusting):
    with token_endpoint() as (url, _), pytest.raises(TokenError) as raised:
        topics(broker.secure["SASL_SSL"], trusting | oauth(url, "wrong"))
    assert str(raised.value) == "the token endpoint at 127.0.0.1 answered 401 (invalid_client)"


@pytest.mark.parametrize(
    "login",
    [
        scram("SCRAM-SHA-256", password="wr0ng"),
        scram("SCRAM-SHA-512", password="wr0ng"),
        sasl("SCRAM-SHA-512", "unknown", "wr0ng"),
        sasl("PLAIN", "plain", "wr0ng"),
    ],
    ids=["SCRAM-SHA-256", "SCRAM-SHA-512", "unknown user", "PLAIN"],
)
def test_a_wrong_password_is_said_and_not_shown(broker, trusting, login, caplog, capfd):
    with caplog.at_level("DEBUG"), pytest.raises(SaslAuthenticationFailedError) as raised:
        topics(broker.secure["SASL_SSL"], trusting | login)
    assert "Authentication failed" in str(raised.value)
    assert "Handshake" not in str(raised.value)
    assert "wr0ng" not in repr(raised.value) + caplog.text + "".join(capfd.readouterr())


def test_a_password_is_in_no_log_of_a_connection(broker, topic, trusting, caplog):
    login = sasl("PLAIN", "plain", USERS["plain"])
    with caplog.at_level("DEBUG"), caplog.at_level("DEBUG", "kafka.protocol.parser"):
        topics(broker.secure["SASL_SSL"], trusting | login)
    assert "Authenticated as plain via SASL / Plain" in caplog.text
    assert USERS["plain"] not in caplog.text and repr(USERS["plain"])[1:-1] not in caplog.text


def test_a_broker_of_another_authority_is_refused(broker, tmp_path):
    other = Authority(tmp_path, "other")
    for trust in ({"ssl.truststore.location": str(other.file)}, {}):
        with pytest.raises(KafkaConnectionError, match="certificate verify failed"):
            topics(broker.secure["SASL_SSL"], scram() | trust)


def test_a_certificate_for_another_host_is_refused_unless_hosts_are_not_checked(broker, topic, trusting):
    address = broker.secure["SASL_SSL"].replace("localhost", "127.0.0.1")
    with pytest.raises(KafkaConnectionError, match="certificate is not valid for"):
        topics(address, trusting | scram())
    unchecked = {"ssl.endpoint.identification.algorithm": ""}
    assert topic in topics(address, trusting | scram() | unchecked)


def test_a_client_without_the_certificate_that_is_required_is_refused(broker, trusting):
    with pytest.raises(KafkaConnectionError, match="certificate"):
        topics(broker.secure["SSL"], trusting | {"security.protocol": "SSL"})


def test_an_unknown_host_is_said(trusting):
    with pytest.raises(KafkaConnectionError, match="DNS Resolution failure"):
        topics("broker.invalid:9093", trusting | scram())


def test_a_connection_without_tls_to_a_listener_with_it_ends(broker):
    with pytest.raises(InvalidReceiveError, match="Invalid frame length"):
        topics(broker.secure["SASL_SSL"], {})
