"""Kafka cluster as the sources and destinations of a job name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from selectroute.durable.settings_file import (
    Setting,
    SettingsFileError,
    read_settings,
    read_text,
    secrets_by_reference,
)
from selectroute.extras import importing
from selectroute.kafka.config import SECRETS, ClientSettings, SettingError, client_settings
from selectroute.spark.sources.checkpoint import SourceError

if TYPE_CHECKING:  # needs the extra `kafka`
    pass

if TYPE_CHECKING:  # needs the extra `kafka`
    from selectroute.kafka.cluster import Wire


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


def _settings(config: str | None) -> dict[str, Setting]:
    """Return the settings of a file. Raises SourceError."""
    try:
        return read_settings(config) if config else {}
    except SettingsFileError as error:
        raise SourceError(str(error)) from None


def _text(file: str) -> str:
    try:
        return read_text(file)
    except SettingsFileError as error:
        raise SourceError(str(error)) from error
