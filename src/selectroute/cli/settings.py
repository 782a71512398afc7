"""Settings of the commands: options, the environment (``SELECTROUTE_*``), a TOML file.

An option overrides the environment, the environment overrides the file, the file overrides the default::

    # ~/.config/selectroute/config.toml, or the file that SELECTROUTE_CONFIG names
    registry = "https://selectroute.example.com"   # or sqlite:///…, postgresql+psycopg://…
    token = "…"                                    # then chmod 600
    dialect = "ibm-mq"                             # of selectors given without one
    queues = "sqlite:///queues.db"                 # if not in the registry's database
    queue_manager = "selectroute"
    timeout = 30.0                                 # seconds for a response of a service
    snapshots = "/srv/snapshots"                   # folder of registry publish and serve
    host = "127.0.0.1"                             # of serve, as all following ones
    port = 8080
    log_level = "info"
    log = "json"                                   # or "text", as on a terminal
    [limits]
    page = 1000

The file is never searched in the working folder: anyone who can write there could name another registry and
receive the token.
"""

from __future__ import annotations

import os
import stat
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import typer
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from selectroute.selector.errors import did_you_mean, shown
from selectroute.selector.sentences import printable
from selectroute.service.limits import ServiceLimits

MAX_CONFIG: Final = 1 << 20
"""Bytes of a configuration file at most."""

_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Settings(BaseSettings):
    """Settings of a command without options."""

    model_config = SettingsConfigDict(env_prefix="SELECTROUTE_", env_ignore_empty=True, extra="ignore")

    registry: str | None = None
    """URL of a database or of a service."""

    queues: str | None = None
    """URL of a database of queues or of a service; by default the registry's."""

    queue_manager: str = "selectroute"
    """Name of a service's queue manager."""

    token: SecretStr | None = None
    """Bearer token for a service; not an option, because every user of a machine can read command lines."""

    dialect: str = "jms"
    """Dialect of selectors."""

    timeout: float = Field(default=30.0, gt=0, le=3600)
    """Seconds to wait for a response of a service."""

    snapshots: str | None = None
    """Folder for snapshots; by default the registry's own."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in their order: options, the environment, the file."""
        return init_settings, env_settings, _File(settings_cls)


class LimitSettings(Settings, env_nested_delimiter="__"):
    """Settings of a command that writes to a registry's database."""

    limits: ServiceLimits = ServiceLimits()


class ServeSettings(LimitSettings):
    """Settings of `selectroute serve`: all that the file may have."""

    host: str = "127.0.0.1"
    port: int = 8080
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log: Literal["text", "json"] | None = None


Kind = TypeVar("Kind", bound=Settings)


class _File(PydanticBaseSettingsSource):
    """Keys of the configuration file that are settings."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False  # required by the base class; __call__ returns all fields

    def __call__(self) -> dict[str, Any]:
        return {
            name: value for name, value in _configured().items() if name in self.settings_cls.model_fields
        }


def settings_of(kind: type[Kind], **options: Any) -> Kind:
    """Return the effective settings; None is an option not given. Raises BadParameter for an invalid one."""
    try:
        return kind(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        # Only field and reason: the value may be a secret.
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise typer.BadParameter(f"invalid setting: {faults}") from None


def config_file() -> tuple[Path, bool]:
    """Return the path of the configuration file, and whether the user named it (then it must exist)."""
    if named := os.environ.get("SELECTROUTE_CONFIG"):
        return Path(named), True
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "selectroute" / "config.toml", False


def _configured() -> dict[str, Any]:
    path, named = config_file()
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG + 1)
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        if not named and isinstance(error, FileNotFoundError | NotADirectoryError):
            return {}
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}") from error
    if len(text) > MAX_CONFIG:
        raise typer.BadParameter(f"{path} is larger than {MAX_CONFIG:,} bytes")
    try:
        configured = tomllib.loads(text.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # A TOML error has a position and a rule, but no line of the file, which could contain the token.
        raise typer.BadParameter(f"{path} is not valid TOML: {error}") from None
    if "token" in configured and mode & _OF_OTHERS:
        _warn(f"other users of this machine can read the token in {path}: chmod 600 {path}")
    for name in configured.keys() - ServeSettings.model_fields.keys():
        meant = did_you_mean(name, sorted(ServeSettings.model_fields))
        _warn(f"{path} has no setting `{shown(name)}`: {meant}")
    return configured


@cache  # the file is read several times in a command
def _warn(text: str) -> None:
    print(printable(f"warning: {text}", 10_000), file=sys.stderr)
