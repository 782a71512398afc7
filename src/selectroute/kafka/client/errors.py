"""Errors of Kafka's client, each in one sentence."""

from __future__ import annotations

from selectroute.selector.errors import SelectRouteError


class KafkaClientError(SelectRouteError):
    """Request to a Kafka cluster without the wanted answer."""


class UnreachableError(KafkaClientError):
    """No answer of a broker in time. A later request may be answered."""


class RefusedError(KafkaClientError):
    """Refusal by a broker: of the login, of a right that is missing, or of a request.

    Attributes:
        name: Kafka's name of the error, such as ``TOPIC_AUTHORIZATION_FAILED``.
        topic: the topic that the refusal concerns; None if it concerns none.
    """

    def __init__(self, sentence: str, name: str, topic: str | None = None) -> None:
        super().__init__(sentence)
        self.name = name
        self.topic = topic


class FencedError(KafkaClientError):
    """End of a producer: another one has begun with its transactional id, or its transaction timed out.

    The transaction was aborted. What comes next depends on what the other producer has committed.
    """
