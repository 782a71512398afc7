"""Configuration of Kafka as data: the input of a job, and the cluster to write to."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from selectroute.durable.settings_file import (
    Setting,
    SettingsFileError,
    read_settings,
    read_text,
    secrets_by_reference,
)
from selectroute.extras import importing
from selectroute.index.destination import TOPIC_NAME
from selectroute.kafka.binding import BY_NAME, KafkaBinding, KafkaBindingError
from selectroute.kafka.config import SECRETS, ClientSettings, SettingError, client_settings
from selectroute.kafka.schemas.registry import OnMissing, SchemaRegistry
from selectroute.spark.sources.checkpoint import SourceError

if TYPE_CHECKING:  # needs the extra `kafka`
    from selectroute.kafka.cluster import Wire

StartingOffsets: TypeAlias = Mapping[str, Mapping[str, int]]
"""Offset of each partition of each topic; -2 is the earliest, -1 the latest."""

_TOPIC: Final = re.compile(TOPIC_NAME)
PREFIX: Final = "kafka:"
"""Prefix of an input's name, before its topics."""

SETTING: Final = "kafka."

FAIL_RECREATED, READ_RECREATED = RECREATED = ("fail", "read")
"""Policies for topics that were created again, or lost records."""


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """Kafka cluster: its address and the settings of clients.

    It is pickled with the place of its secrets: the file that they are from, or one of this user.

    Attributes:
        servers: ``host:port,host:port``, of any of the brokers.
        options: settings of Kafka's clients with the prefix ``kafka.``, such as ``kafka.security.protocol``.
            They may contain secrets, and are never shown.
        recreated: the policy for a topic that was created again under its name, or lost records that were
            read or sent: ``fail``, or ``read``: go on with what is there now, a new topic from its beginning.
        settings: their meaning here.

    Raises SourceError for a setting that is unknown, not allowed or not valid.
    """

    servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    recreated: str = FAIL_RECREATED

    settings: ClientSettings = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.servers.strip():
            raise SourceError("no Kafka server is given: name at least one, host:port")
        if self.recreated not in RECREATED:
            raise SourceError(f"recreated must be one of {', '.join(RECREATED)}, not {self.recreated!r}")
        for name in self.options:
            if not name.startswith(SETTING):
                raise SourceError(f"the setting {name!r} is not allowed here: write kafka.NAME")
        settings = {name.removeprefix(SETTING): value for name, value in self.options.items()}
        try:
            object.__setattr__(self, "settings", client_settings(settings))
        except SettingError as error:
            value = settings.get(error.setting)
            place = f"{value.file}:{value.line}: " if isinstance(value, Setting) else ""
            raise SourceError(f"{place}{error}") from error
        secrets = {SETTING + name for name in SECRETS}
        object.__setattr__(self, "options", secrets_by_reference(self.options, secrets))

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaCluster, (self.servers, self.options, self.recreated)

    @property
    def reads_committed(self) -> bool:
        """True if records of aborted transactions are left out."""
        return self.settings.isolation == "read_committed"

    def wire(self, seconds: float | None = None) -> Wire:
        """Return connections to the cluster, whose calls take at most so many seconds, or what the settings
        say; close them.
        """
        with importing():
            from selectroute.kafka.cluster import Wire

        settings = self.settings
        return Wire(
            self.servers,
            settings.connection_options(),
            settings.api_seconds if seconds is None else seconds,
            request_seconds=settings.request_seconds,
            delivery_seconds=settings.delivery_seconds,
        )


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


def kafka_cluster(
    servers: str, config: str | None = None, recreated: str = FAIL_RECREATED
) -> KafkaCluster | None:
    """Return the cluster at these servers; None if ``servers`` is empty.

    Args:
        servers: ``host:port,host:port``.
        config: a file of settings of Kafka's clients, lines ``name=value`` and ``#`` comments. If it contains
            secrets, restrict its permissions; tasks read them there, so it must be on each machine.
        recreated: the policy for topics that were created again, see `KafkaCluster`.

    Raises:
        SourceError: the file can't be read, or is not valid.
    """
    if not servers:
        return None
    options = {f"{SETTING}{name}": value for name, value in _settings(config).items()}
    options.pop(f"{SETTING}bootstrap.servers", None)
    options.pop(f"{SETTING}group.id", None)
    return KafkaCluster(servers, options, recreated)


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


def _settings(config: str | None) -> dict[str, Setting]:
    """Return the settings of a file. Raises SourceError."""
    try:
        return read_settings(config) if config else {}
    except SettingsFileError as error:
        raise SourceError(str(error)) from None


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


def _text(file: str) -> str:
    try:
        return read_text(file)
    except SettingsFileError as error:
        raise SourceError(str(error)) from error
