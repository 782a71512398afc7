"""Configuration of Kafka as data: the input of a job, and the cluster to write to."""

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
from selectroute.kafka.schemas.registry import OnMissing, SchemaRegistry
from selectroute.spark.sources.files.stream import SourceError

_TOPIC: Final = re.compile(TOPIC_NAME)
PREFIX: Final = "kafka:"
"""Prefix of an input's name, before its topics."""

SETTING: Final = "kafka."
_OURS: Final = frozenset(
    SETTING + name
    for name in (
        "bootstrap.servers",
        "group.id",
        # Spark sets these itself, and rejects them as options.
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
"""Required settings of a producer, with their spellings: a record is acknowledged when all replicas in sync
have it, and a client's own retry does not duplicate it."""
_SOON: Final = {"kafka.fetch.max.wait.ms": "10"}
"""Default of a consumer. With each poll it requests the next records, and a broker answers the requests of a
connection in order: if there are no new records, Spark's next request, for the end of a partition, waits this
long, and so does the batch. Kafka's own default is half a second, for each round of tasks."""


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """Kafka cluster: its address and the settings of clients.

    Attributes:
        servers: ``host:port,host:port``, of any of the brokers.
        options: settings of Kafka's clients with the prefix ``kafka.``, such as ``kafka.security.protocol``.
            They may contain secrets, and are never shown.
    """

    servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.servers.strip():
            raise SourceError("no Kafka server is given: name at least one, host:port")
        for name in self.options:
            if not name.startswith(SETTING) or name in _OURS:
                ours = ", ".join(sorted(_OURS))
                raise SourceError(
                    f"the setting {name!r} is not allowed here: write kafka.NAME, but not one of {ours}"
                )
        for name, allowed in _SAFE.items():
            if self.options.get(name, allowed[0]).lower() not in allowed:
                raise SourceError(
                    f"{name.removeprefix(SETTING)} must be {allowed[0]!r}, not {self.options[name][:40]!r}, "
                    "or committed deliveries could be lost"
                )

    def for_source(self) -> dict[str, str]:
        """Return the options of Spark's source."""
        return {**_SOON, **self._for_spark()}

    def for_sink(self) -> dict[str, str]:
        """Return the options of Spark's sink."""
        return self._for_spark() | {name: allowed[0] for name, allowed in _SAFE.items()}

    def for_clients(self) -> dict[str, str]:
        """Return the settings of Kafka's own clients."""
        return {name.removeprefix(SETTING): value for name, value in self._for_spark().items()}

    def for_producers(self) -> dict[str, str]:
        """Return the settings of a producer."""
        return {name.removeprefix(SETTING): value for name, value in self.for_sink().items()}

    def _for_spark(self) -> dict[str, str]:
        return {**self.options, "kafka.bootstrap.servers": self.servers}


@dataclass(frozen=True, slots=True)
class KafkaInput:
    """Kafka records as the input of a job.

    Attributes:
        cluster: the cluster of the topics.
        topics: the names of the topics; or
        pattern: a Java regular expression for them, which also matches topics created later.
        binding: sources and types of properties.
        starting: start of the first batch in each partition: ``earliest``, ``latest``, or an offset for each
            as JSON, ``{"topic": {"0": 23, "1": -2}}`` (-2 is the earliest, -1 the latest). Later batches
            continue at the end of the previous one.
        max_offsets: maximum number of records of a batch; None for all available.
        min_partitions: minimum number of tasks of a batch; None: one per partition of Kafka.
        schemas: the registry of the schemas of bodies; None: bodies are JSON.
    """

    cluster: KafkaCluster
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    binding: KafkaBinding = BY_NAME
    starting: str = "earliest"
    max_offsets: int | None = None
    min_partitions: int | None = None
    schemas: SchemaRegistry | None = None

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.pattern):
            raise SourceError("give either Kafka topics or a pattern of topics, not both or neither")
        for topic in self.topics:
            if not _TOPIC.fullmatch(topic):
                raise SourceError(f"{topic!r} is not a valid Kafka topic: use 1 to 249 of A-Z a-z 0-9 . _ -")
        if self.starting not in ("earliest", "latest") and not _is_offsets(self.starting):
            raise SourceError(
                'the starting offsets must be earliest, latest, or {"topic": {"0": 23}} for each partition, '
                f"not {self.starting[:40]!r}"
            )
        for name, number in (("max_offsets", self.max_offsets), ("min_partitions", self.min_partitions)):
            if number is not None and number < 1:
                raise SourceError(f"{name} must be at least 1, not {number}")

    @property
    def name(self) -> str:
        """Name that distinguishes this input from others."""
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
    """Return the cluster at these servers; None if ``servers`` is empty.

    Args:
        servers: ``host:port,host:port``.
        config: a file of settings of Kafka's clients in the format of Kafka's own tools: lines ``name=value``
            and ``#`` comments. It may contain secrets, so restrict its permissions.

    Raises:
        SourceError: the file can't be read, or is not valid.
    """
    if not servers:
        return None
    options = {SETTING + name: value for name, value in _properties(config).items()}
    options.pop(f"{SETTING}bootstrap.servers", None)
    options.pop(f"{SETTING}group.id", None)
    return KafkaCluster(servers, options)


def schema_registry(
    url: str, config: str | None = None, on_missing: OnMissing = "wait"
) -> SchemaRegistry | None:
    """Return the schema registry at this URL; None if ``url`` is empty.

    Args:
        url: the registry's URL, or several, separated by commas.
        config: a file of settings of its client, by Confluent's names, in the format of Kafka's own tools:
            lines ``name=value`` and ``#`` comments. It may contain secrets, so restrict its permissions.
        on_missing: the policy for schemas that are not available, see `SchemaRegistry`.

    Raises:
        SourceError: the file can't be read, or is not valid.
        SchemaSettingsError: a setting is unknown or not valid.
        ModuleNotFoundError: the extra ``schemas`` is not installed.
    """
    if not url:
        return None
    options = _properties(config)
    options.pop("url", None)
    registry = SchemaRegistry(url, options, on_missing)
    registry.client()  # the same error on every worker would come late
    return registry


def _properties(config: str | None) -> dict[str, str]:
    """Return the settings of a file of Kafka's tools."""
    options: dict[str, str] = {}
    for number, line in enumerate(_text(config).splitlines() if config else [], 1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            # The line itself is not shown: it may be a secret.
            raise SourceError(f"{config}, line {number}, is not name=value")
        options[name.strip()] = value.strip()
    return options


def kafka_binding(
    texts: Sequence[str] = (), file: str | None = None, separator: str | None = None
) -> KafkaBinding:
    """Return the binding of a file and of these entries, which take precedence.

    Args:
        texts: ``IDENTIFIER[:TYPE][=SOURCE]`` each.
        file: TOML, or JSON by its ending: ``{"fields": {identifier: {"type": …, "from": …}}}``.
        separator: the character that separates topic levels in Kafka's topic names.

    Raises:
        KafkaBindingError: an entry or the file is not valid; the text names which.
        SourceError: the file can't be read.
    """
    given = KafkaBinding.of(texts, separator)
    if file is None:
        return given
    text = _text(file)
    try:
        data: Any = json.loads(text) if file.endswith(".json") else tomllib.loads(text)
        if not isinstance(data, dict):
            raise ValueError("a binding must be an object")
        own = KafkaBinding.from_dict(data)
    except (ValueError, RecursionError, KafkaBindingError) as error:
        raise KafkaBindingError(f"{file}: {error}") from error
    return KafkaBinding({**own.bound, **given.bound}, separator or own.separator)


def _text(file: str) -> str:
    path = Path(file)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise SourceError(f"{file} is larger than {_MOST_BYTES:,} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{file} is not UTF-8") from error
    except OSError as error:
        raise SourceError(f"{file} can't be read: {error.strerror or error}") from error
