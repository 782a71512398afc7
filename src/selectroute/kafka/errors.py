"""Errors of records that are not valid messages, and of requests to a cluster."""

from __future__ import annotations

from typing import Final

from selectroute.selector.errors import SelectRouteError

GO_ON: Final = "--kafka-recreated read goes on with what is there now"
"""Clause about a topic that has changed."""


class KafkaClientError(SelectRouteError):
    """Request to a Kafka cluster without the wanted answer."""


class BrokerUnreachableError(KafkaClientError):
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


class TopicChangedError(KafkaClientError):
    """Topic that is not the one of its name that was used before: it was created again, or lost records.

    Attributes:
        topic: its name.
    """

    def __init__(self, sentence: str, topic: str) -> None:
        super().__init__(sentence)
        self.topic = topic


class LostRecordsError(KafkaClientError):
    """Records that Kafka dropped before they were read."""


class RecordError(SelectRouteError):
    """Record that is not a valid message. Its dead letter has the same `stage` and `reason`."""

    def __init__(self, stage: str, reason: str, problem: str) -> None:
        super().__init__(stage, reason, problem)
        self.stage = stage
        self.reason = reason
        self.problem = problem

    def __str__(self) -> str:
        return self.problem
