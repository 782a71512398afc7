"""Configuration of Kafka as data: the input of a job, and the cluster to which it writes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from selectroute.index.destination import TOPIC_NAME
from selectroute.kafka.binding import BY_NAME, KafkaBinding, KafkaBindingError
from selectroute.spark.sources.files.stream import SourceError

_TOPIC: Final = re.compile(TOPIC_NAME)
PREFIX: Final = "kafka:"
"""Before the topics, in the name of an input."""

SETTING: Final = "kafka."
_OURS: Final = frozenset(
    SETTING + name
    for name in (
        "bootstrap.servers",
        "group.id",
        # What Spark sets itself, and refuses.
        "auto.offset.reset",
        "enable.auto.commit",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "value.deserializer",
        "value.serializer",
    )
)
_SAFE: Final = {"kafka.acks": ("all", "-1"), "kafka.enable.idempotence": ("true",)}
"""What a producer is told, in the ways in which that is said: a record is written when all replicas in sync
have it, and a client that sends it once more by itself makes no second one."""
_SOON: Final = {"kafka.fetch.max.wait.ms": "10"}
"""Unless said otherwise. With each poll a consumer asks for what comes next, and a broker answers one
question of a connection after the other: when nothing more has come, Spark's next question, where a partition
ends, waits for so long, and the batch with it. By itself that is half a second, for each round of tasks."""


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """Kafka cluster: where it is, and how to reach it.

    Attributes:
        servers: ``host:port,host:port``, of any of its brokers.
        options: settings of Kafka's clients, each name with ``kafka.`` before it, such as
            ``kafka.security.protocol``. They may hold secrets, and are shown nowhere.
    """

    servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.servers.strip():
            raise SourceError("Kafka has at least one server, host:port")
        for name in self.options:
            if not name.startswith(SETTING) or name in _OURS:
                ours = ", ".join(sorted(_OURS))
                raise SourceError(
                    f"{name!r} is no setting of Kafka's clients to be given here: kafka.NAME, and none of "
                    f"{ours}"
                )
        for name, said in _SAFE.items():
            if self.options.get(name, said[0]).lower() not in said:
                raise SourceError(
                    f"{name.removeprefix(SETTING)} is {said[0]!r}, not {self.options[name][:40]!r}: what is "
                    "committed could be lost on its way"
                )

    def for_source(self) -> dict[str, str]:
        """Options of Spark's source."""
        return {**_SOON, **self._for_spark()}

    def for_sink(self) -> dict[str, str]:
        """Options of Spark's sink."""
        return self._for_spark() | {name: said[0] for name, said in _SAFE.items()}

    def for_clients(self) -> dict[str, str]:
        """Settings of Kafka's own clients."""
        return {name.removeprefix(SETTING): value for name, value in self._for_spark().items()}

    def for_producers(self) -> dict[str, str]:
        """Settings of a producer."""
        return {name.removeprefix(SETTING): value for name, value in self.for_sink().items()}

    def _for_spark(self) -> dict[str, str]:
        return {**self.options, "kafka.bootstrap.servers": self.servers}


@dataclass(frozen=True, slots=True)
class KafkaInput:
    """Input of a job: records of Kafka.

    Attributes:
        cluster: where.
        topics: their names; or
        pattern: a regular expression of Java's for them, topics that are made later too.
        binding: where properties come from, and their types.
        starting: where the first batch begins in each partition: ``earliest``, ``latest``, or an offset for
            each as JSON, ``{"topic": {"0": 23, "1": -2}}`` (-2 is the earliest, -1 the latest). Later batches
            go on where the one before ended.
        max_offsets: the most records of a batch, None for all that there are.
        min_partitions: into how many parts a batch is cut at least; None: one a partition of Kafka.
    """

    cluster: KafkaCluster
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    binding: KafkaBinding = BY_NAME
    starting: str = "earliest"
    max_offsets: int | None = None
    min_partitions: int | None = None

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.pattern):
            raise SourceError("a job reads either topics of Kafka or those of a pattern")
        for topic in self.topics:
            if not _TOPIC.fullmatch(topic):
                raise SourceError(f"{topic!r} is no topic of Kafka: 1 to 249 of A-Z a-z 0-9 . _ -")
        if self.starting not in ("earliest", "latest") and not _is_offsets(self.starting):
            raise SourceError(
                'the first batch begins at earliest, latest, or {"topic": {"0": 23}} for each partition, not '
                f"{self.starting[:40]!r}"
            )
        for name, number in (("max_offsets", self.max_offsets), ("min_partitions", self.min_partitions)):
            if number is not None and number < 1:
                raise SourceError(f"{name} is at least 1, not {number}")

    @property
    def name(self) -> str:
        """Name that tells it from other inputs."""
        return PREFIX + (",".join(sorted(self.topics)) or f"/{self.pattern}/")


def _is_offsets(text: str) -> bool:
    try:
        data = json.loads(text)
        return bool(data) and all(
            offset.is_integer() if isinstance(offset, float) else isinstance(offset, int)
            for partitions in data.values()
            for offset in partitions.values()
        )
    except (ValueError, AttributeError):
        return False


_MOST_BYTES: Final = 1 << 20


def kafka_cluster(servers: str, config: str | None = None) -> KafkaCluster | None:
    """Return the cluster at these servers, None if there are none.

    Args:
        servers: ``host:port,host:port``.
        config: a file of settings of Kafka's clients as its own tools have it: ``name=value`` a line, ``#``
            before remarks. It may hold secrets: let nobody else read it.

    Raises:
        SourceError: the file can't be read, or is none.
    """
    if not servers:
        return None
    options: dict[str, str] = {}
    for number, line in enumerate(_text(config).splitlines() if config else [], 1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            # The line itself may be a secret.
            raise SourceError(f"{config}, line {number}, is no name=value")
        options[SETTING + name.strip()] = value.strip()
    options.pop(f"{SETTING}bootstrap.servers", None)
    options.pop(f"{SETTING}group.id", None)
    return KafkaCluster(servers, options)


def kafka_binding(
    texts: Sequence[str] = (), file: str | None = None, separator: str | None = None
) -> KafkaBinding:
    """Return the binding of a file with these entries besides, which go before its own.

    Args:
        texts: ``IDENTIFIER[:TYPE][=SOURCE]`` each.
        file: TOML, or JSON by its ending: ``{"fields": {identifier: {"type": …, "from": …}}}``.
        separator: the character that divides the levels of a topic string in Kafka's names of topics.

    Raises:
        KafkaBindingError: one of them is none; it says which.
        SourceError: the file can't be read.
    """
    given = KafkaBinding.of(texts, separator)
    if file is None:
        return given
    text = _text(file)
    try:
        data: Any = json.loads(text) if file.endswith(".json") else tomllib.loads(text)
        if not isinstance(data, dict):
            raise ValueError("a binding is an object")
        own = KafkaBinding.from_dict(data)
    except (ValueError, RecursionError) as error:
        raise KafkaBindingError(f"{file}: {error}") from error
    except KafkaBindingError as error:
        raise KafkaBindingError(f"{file}: {error}") from error
    return KafkaBinding({**own.bound, **given.bound}, separator or own.separator)


def _text(file: str) -> str:
    path = Path(file)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise SourceError(f"{file} has more than {_MOST_BYTES:,} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{file} is not UTF-8") from error
    except OSError as error:
        raise SourceError(f"{file} can't be read: {error.strerror or error}") from error
