"""Configuration of Kafka as data: the input of a job, and the cluster to write to."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from selectroute.index.destination import TOPIC_NAME
from selectroute.kafka.binding import BY_NAME, KafkaBinding, KafkaBindingError
from selectroute.kafka.schemas.registry import OnMissing, SchemaRegistry
from selectroute.spark.cluster import KafkaCluster, _settings, _text
from selectroute.spark.sources.checkpoint import SourceError

if TYPE_CHECKING:  # needs the extra `kafka`
    pass

StartingOffsets: TypeAlias = Mapping[str, Mapping[str, int]]
"""Offset of each partition of each topic; -2 is the earliest, -1 the latest."""

_TOPIC: Final = re.compile(TOPIC_NAME)
PREFIX: Final = "kafka:"
"""Prefix of an input's name, before its topics."""


@dataclass(frozen=True, slots=True)
class KafkaInput:
    """Kafka records as the input of a job.

    Attributes:
        cluster: the cluster of the topics.
        topics: the names of the topics; or
        pattern: a regular expression for their whole names, which also matches topics created later.
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
    starting: str | StartingOffsets = "earliest"
    max_offsets: int | None = None
    min_partitions: int | None = None
    schemas: SchemaRegistry | None = None

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.pattern):
            raise SourceError("give either Kafka topics or a pattern of topics, not both or neither")
        for topic in self.topics:
            if not _TOPIC.fullmatch(topic):
                raise SourceError(f"{topic!r} is not a valid Kafka topic: use 1 to 249 of A-Z a-z 0-9 . _ -")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise SourceError(f"the pattern of topics is not a regular expression: {error}") from error
        if self.starting not in ("earliest", "latest"):
            object.__setattr__(self, "starting", _starting_offsets(self.starting))
        for name, number in (("max_offsets", self.max_offsets), ("min_partitions", self.min_partitions)):
            if number is not None and number < 1:
                raise SourceError(f"{name} must be at least 1, not {number}")

    @property
    def name(self) -> str:
        """Name that distinguishes this input from others."""
        return PREFIX + (",".join(sorted(self.topics)) or f"/{self.pattern}/")

    def matching(self, topics: Iterable[str]) -> set[str]:
        """Return the topics that match this input."""
        if self.pattern is None:
            return set(topics) & set(self.topics)
        return {topic for topic in topics if re.fullmatch(self.pattern, topic)}


def _starting_offsets(starting: str | StartingOffsets) -> StartingOffsets:
    """Return the offset of each partition. Raises SourceError."""
    try:
        offsets: Any = json.loads(starting) if isinstance(starting, str) else starting
        # The offsets of a checkpoint also say what the topics are.
        data = {topic: of_topic for topic, of_topic in offsets.items() if topic != "@"}
        parsed = {
            topic: {str(int(number)): int(offset) for number, offset in of_topic.items()}
            for topic, of_topic in data.items()
        }
        if parsed and all(float(at) == at >= -2 for of_topic in data.values() for at in of_topic.values()):
            return parsed
    except (ValueError, TypeError, AttributeError):
        pass
    raise SourceError(
        'the starting offsets must be earliest, latest, or {"topic": {"0": 23}} for each partition, '
        f"not {str(starting)[:40]!r}"
    )


def schema_registry(
    url: str, config: str | None = None, on_missing: OnMissing = "wait"
) -> SchemaRegistry | None:
    """Return the schema registry at this URL; None if ``url`` is empty.

    Args:
        url: the registry's URL, or several, separated by commas.
        config: a file of settings of its client, by Confluent's names, in the same format.
        on_missing: the policy for schemas that are not available, see `SchemaRegistry`.

    Raises:
        SourceError: the file can't be read, or is not valid.
        SchemaSettingsError: a setting is unknown or not valid.
        MissingExtraError: the extra ``schemas`` is not installed.
    """
    if not url:
        return None
    options: dict[str, str] = {**_settings(config)}
    options.pop("url", None)
    registry = SchemaRegistry(url, options, on_missing)
    registry.client()  # the same error on every worker would come late
    return registry


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
    entries = KafkaBinding.of(texts, separator)
    if file is None:
        return entries
    text = _text(file)
    try:
        data: Any = json.loads(text) if file.endswith(".json") else tomllib.loads(text)
        if not isinstance(data, dict):
            raise ValueError("a binding must be an object")
        own = KafkaBinding.from_dict(data)
    except (ValueError, RecursionError, KafkaBindingError) as error:
        raise KafkaBindingError(f"{file}: {error}") from error
    return KafkaBinding({**own.bound, **entries.bound}, separator or own.separator)
