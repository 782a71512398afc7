"""Settings of a schema registry, and its client."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

from selectroute.durable.settings_file import secrets_by_reference
from selectroute.extras import importing
from selectroute.selector.errors import SelectRouteError, did_you_mean

OnMissing = Literal["wait", "dead-letter"]
ON_MISSING: Final = ("wait", "dead-letter")

SETTINGS: Final[Mapping[str, Callable[[str], Any]]] = {
    "basic.auth.user.info": str,
    "bearer.auth.client.id": str,
    "bearer.auth.client.secret": str,
    "bearer.auth.credentials.source": str,
    "bearer.auth.identity.pool.id": str,
    "bearer.auth.issuer.endpoint.url": str,
    "bearer.auth.logical.cluster": str,
    "bearer.auth.scope": str,
    "bearer.auth.token": str,
    "max.retries": int,
    "proxy": str,
    "retries.max.wait.ms": int,
    "retries.wait.ms": int,
    "ssl.ca.location": str,
    "ssl.certificate.location": str,
    "ssl.key.location": str,
    "ssl.key.password": str,
    "timeout": float,
}
"""Settings of the client by their names, and the type of each."""

_SECRETS: Final = frozenset(
    ("basic.auth.user.info", "bearer.auth.client.secret", "bearer.auth.token", "proxy", "ssl.key.password")
)
_DEFAULTS: Final[Mapping[str, Any]] = {"timeout": 10.0, "retries.wait.ms": 200, "retries.max.wait.ms": 2_000}
_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_LIBRARIES: Final = ("fastavro", "google.protobuf")
"""Libraries of the decoders, which the client does not import."""


class SchemaSettingsError(SelectRouteError):
    """Invalid setting of a schema registry. The text names it and never shows its value."""


class SchemaClient(Protocol):
    """Requests of a registry's client, as in ``confluent_kafka``, that readers of bodies make."""

    def get_schema(self, schema_id: int, *, fmt: str | None = ...) -> Any:
        """Return the schema with this id."""

    def get_schema_by_guid(self, guid: str, fmt: str | None = ...) -> Any:
        """Return the schema with this GUID."""

    def get_version(self, subject_name: str, version: int, deleted: bool = ..., fmt: str | None = ...) -> Any:
        """Return a version of a subject."""


@dataclass(frozen=True)
class SchemaRegistry:
    """Schema registry of the bodies of records.

    Attributes:
        url: ``https://host:port`` or ``http://…``; of several, separated by commas, the next one is asked if
            one does not answer.
        options: settings of the client, by the names of `SETTINGS`. Secrets among them are never shown, and
            pickled as their place: the file that they are from, or one of this user. Files that they name
            must exist wherever records are read.
        on_missing: for a schema that is unknown to the registry, or can't be fetched because the registry
            does not answer: ``wait`` until it can, or ``dead-letter`` the record.

    Raises:
        SchemaSettingsError: a setting is unknown or not valid.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_missing: OnMissing = "wait"

    def __post_init__(self) -> None:
        for url in self.url.split(","):
            _check_url(url.strip())
        if self.on_missing not in ON_MISSING:
            raise SchemaSettingsError(
                f"a missing schema can be {' or '.join(ON_MISSING)}, not {self.on_missing!r:.40}"
            )
        options: Mapping[str, Any] = self.options
        for name, value in options.items():
            if name not in SETTINGS:
                advice = did_you_mean(name, SETTINGS, "it is one of")
                raise SchemaSettingsError(f"a schema registry has no setting {name!r:.80}: {advice}")
            if not isinstance(value, str) or not _is_of(SETTINGS[name], value):
                kind = "text" if SETTINGS[name] is str else "a number of at least 0"
                raise SchemaSettingsError(f"the setting {name} of a schema registry must be {kind}")
        if "bearer.auth.token" in self.options and "basic.auth.user.info" in self.options:
            raise SchemaSettingsError("give a schema registry basic.auth.user.info or a token, not both")
        object.__setattr__(self, "options", secrets_by_reference(self.options, _SECRETS))

    def __hash__(self) -> int:
        return hash((self.url, tuple(sorted(self.options.items())), self.on_missing))

    def client(self) -> SchemaClient:
        """Return a client. It connects when it is first used.

        Raises:
            SchemaSettingsError: the client rejects the settings, or can't read a file.
            MissingExtraError: the extra ``schemas`` is not installed.
        """
        with importing("schemas"):
            from confluent_kafka.schema_registry import SchemaRegistryClient

            for name in _LIBRARIES:
                import_module(name)
        for name in _FILES:
            if name in self.options and not Path(self.options[name]).exists():
                raise SchemaSettingsError(f"the file of {name} does not exist: {self.options[name]!r:.200}")
        settings = {name: SETTINGS[name](value) for name, value in self.options.items()}
        if "bearer.auth.token" in settings:
            # Registries of other makers have neither; the client asks for both.
            settings = {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.logical.cluster": "",
                **settings,
            }
        try:
            return SchemaRegistryClient({**_DEFAULTS, **settings, "url": self.url})
        except (ValueError, TypeError, OSError) as error:
            # The error's own text may show a value; those of missing settings name only settings.
            named = re.findall(r"\b(?:basic|bearer|ssl)\.[a-z.]+[a-z]\b", str(error))
            about = f" ({', '.join(dict.fromkeys(named))})" if named else f" ({type(error).__name__})"
            raise SchemaSettingsError(f"the settings of the schema registry are not valid{about}") from None


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise SchemaSettingsError("the URL of a schema registry is not valid") from None
    if parts.username is not None or parts.password is not None:
        raise SchemaSettingsError(
            "the URL of a schema registry may not contain a password: write basic.auth.user.info into the "
            "file of its settings"
        )
    if not valid:
        raise SchemaSettingsError(
            f"the URL of a schema registry must be https://host or http://host, not {url!r:.80}"
        )


def _is_of(type_: Callable[[str], Any], value: str) -> bool:
    if type_ is str:
        return True
    try:
        return bool(0 <= type_(value) < 1e9)
    except ValueError:
        return False
