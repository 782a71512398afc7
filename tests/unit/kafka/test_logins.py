"""What a broker may not do: have a login sent in clear text, ask for a cheap proof, answer with nulls."""

import pytest

pytest.importorskip("kafka.net.manager", reason="kafka-python is not installed (the extra `kafka`)")

from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from kafka.future import Future
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.admin import DescribeConfigsResponse
from kafka.protocol.metadata import MetadataResponse

from selectroute.kafka.cluster import Wire
from selectroute.kafka.config import client_settings
from selectroute.kafka.errors import BrokerUnreachableError, RefusedError

LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "u", "sasl.password": "hunter2"}
ALLOW = "selectroute.allow.plaintext.credentials"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@pytest.mark.parametrize(
    ("host", "more", "is_sent"),
    [
        ("127.0.0.1", {}, True),
        ("localhost", {}, True),
        ("192.0.2.1", {}, False),
        ("192.0.2.1", {ALLOW: "false"}, False),
        ("192.0.2.1", {ALLOW: "true"}, True),
        ("192.0.2.1", {"security.protocol": "SASL_SSL"}, True),
    ],
)
def test_a_login_in_clear_text_goes_to_this_machine_only(monkeypatch, mechanism, host, more, is_sent):
    asked = []

    async def connecting(_manager, node, connection, **_named):
        asked.append(node.host)
        connection.connection_lost(KafkaConnectionError("not in a test"))

    monkeypatch.setattr("kafka.net.manager.KafkaConnectionManager._connect", connecting)
    name = "sasl.oauthbearer.client.credentials.client"
    more = {
        "sasl.oauthbearer.token.endpoint.url": "https://h/t",
        f"{name}.id": "u",
        f"{name}.secret": "s",
        **more,
    }
    options = client_settings({**LOGIN, "sasl.mechanism": mechanism, **more}).connection_options()
    sentence = (
        "does not answer" if is_sent else f"to {host} unencrypted: use SASL_SSL, or, .* set {ALLOW}=true"
    )
    with (
        Wire(f"{host}:9", options, 0.3) as wire,
        pytest.raises(BrokerUnreachableError if is_sent else RefusedError, match=sentence),
    ):
        wire.topics()
    assert asked == [host] * len(asked) and bool(asked) == is_sent


def test_a_ticket_of_kerberos_needs_no_encryption():
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    with (
        Wire("192.0.2.1:9", options, 0.1) as wire,
        pytest.raises(BrokerUnreachableError, match="does not answer"),
    ):
        wire.topics()


@pytest.mark.parametrize(("iterations", "is_enough"), [(1, False), (4095, False), (4096, True)])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_proof_with_few_iterations_is_refused(mechanism, iterations, is_enough):
    options = client_settings(LOGIN | {"sasl.mechanism": mechanism}).connection_options()
    login = get_sasl_mechanism(mechanism)(host="localhost", **options)
    nonce = login.auth_bytes().decode().rpartition("r=")[2]
    first = f"r={nonce}x,s=c2FsdA==,i={iterations}".encode()
    if is_enough:
        login.receive(first)
        assert b",p=" in login.auth_bytes()
    else:
        with pytest.raises(
            SaslAuthenticationFailedError, match=f"{iterations} iterations .* fewer than 4,096"
        ):
            login.receive(first)


V = {"version": 12}
BROKER = MetadataResponse.MetadataResponseBroker(**V, node_id=1, host="localhost", port=9)
TOPIC = MetadataResponse.MetadataResponseTopic


def metadata(**given):
    own = TOPIC(**V, name="t", partitions=[])
    return MetadataResponse(**V, **{"brokers": [BROKER], "topics": [own], **given})


NOBODY = MetadataResponse.MetadataResponseBroker(**V, node_id=1, host=None, port=9)
UNNAMED = TOPIC(**V, name=None, partitions=[])
EMPTY = TOPIC(**V, name="t", partitions=None)
SETTINGS = DescribeConfigsResponse.DescribeConfigsResult(
    version=4, error_code=0, resource_type=2, resource_name="t", configs=None
)


@pytest.mark.parametrize(
    "answer",
    [
        metadata(),
        metadata(brokers=None),
        metadata(brokers=[NOBODY]),
        metadata(topics=None),
        metadata(topics=[UNNAMED]),
        metadata(topics=[EMPTY]),
        DescribeConfigsResponse(version=4, results=None),
        DescribeConfigsResponse(version=4, results=[SETTINGS]),
    ],
)
def test_a_null_in_an_answer_is_an_error_in_a_sentence(monkeypatch, answer):
    kind = type(answer)
    received = kind.decode(answer.encode(version=answer.version), version=answer.version)
    monkeypatch.setattr(Wire, "_send", lambda *_: Future().success(received))
    with Wire("localhost:9", seconds=0.01) as wire:
        call = wire.topics if kind is MetadataResponse else lambda: wire.topic_settings(["t"], "a")
        if answer == metadata():
            assert call() == {"t"}
            return
        with pytest.raises(BrokerUnreachableError, match="the broker's answer is not Kafka's"):
            call()
