"""Settings of the commands beside their options: the environment (``SELECTROUTE_*``), then a TOML file.

An option goes before the environment, the environment before the file, the file before the default::

    # ~/.config/selectroute/config.toml, or the file that SELECTROUTE_CONFIG names
    registry = "https://selectroute.example.com"   # or sqlite:///…, postgresql+psycopg://…
    token = "…"                                    # then chmod 600
    dialect = "ibm-mq"                             # of selectors that are given without one
    queues = "sqlite:///queues.db"                 # unless they are where the registry is
    queue_manager = "selectroute"
    timeout = 30.0                                 # seconds for an answer of a service
    snapshots = "/srv/snapshots"                   # where registry publish and serve publish
    host = "127.0.0.1"                             # of serve, as all that follow
    port = 8080
    log_level = "info"
    log = "json"                                   # or "text", as on a terminal
    [limits]
    page = 1000

The file is never looked for in the working folder: whoever can write there could name another registry
and be sent the token.
"""

from __future__ import annotations

import os
import stat
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import typer
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from selectroute.selector.explain.sentences import printable
from selectroute.selector.suggestion import did_you_mean, shown

MAX_CONFIG: Final = 1 << 20
"""Bytes in a configuration file; a larger one is none."""

OF_SERVICE: Final = frozenset({"host", "port", "log_level", "log", "limits"})
"""The settings of `selectroute serve` alone, which may stand in the file too."""

_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Settings(BaseSettings):
    """Settings that hold where a command is given no option."""

    model_config = SettingsConfigDict(env_prefix="SELECTROUTE_", env_ignore_empty=True, extra="ignore")

    registry: str | None = None
    """The URL of a database or of a service."""

    queues: str | None = None
    """The URL of a database of queues or of a service; the registry's if it is not said."""

    queue_manager: str = "selectroute"
    """The name of the queue manager that a service is."""

    token: SecretStr | None = None
    """The bearer token for a service; no option, because every user of a machine can read command lines."""

    dialect: str = "jms"
    """The dialect of selectors."""

    timeout: float = Field(default=30.0, gt=0, le=3600)
    """Seconds to wait for an answer of a service."""

    snapshots: Path | None = None
    """The folder in which `registry publish` publishes, unless the registry says another."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Options, then the environment, then the file."""
        return init_settings, env_settings, _File(settings_cls)


Kind = TypeVar("Kind", bound=Settings)


class _File(PydanticBaseSettingsSource):
    """Keys of the configuration file that are settings."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False  # the base class asks for it; __call__ gives all at once

    def __call__(self) -> dict[str, Any]:
        return {
            name: value for name, value in _configured().items() if name in self.settings_cls.model_fields
        }


def settings(**options: Any) -> Settings:
    """Return what holds; an option that is None was not given. A value that is none is wrong usage."""
    return settings_of(Settings, **options)


def settings_of(kind: type[Kind], **options: Any) -> Kind:
    """Return what holds, with the settings that a command of its own has."""
    try:
        return kind(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        # Only place and reason: the value may be a secret.
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise typer.BadParameter(f"a setting cannot be read: {faults}") from None


def config_file() -> tuple[Path, bool]:
    """Return where the configuration file is, and whether the user named it (then it must be there)."""
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
        found = tomllib.loads(text.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # The reason of a TOML error is a place and a rule; a line of the file could hold the token.
        raise typer.BadParameter(f"{path} is no TOML: {error}") from None
    if "token" in found and mode & _OF_OTHERS:
        _warn_of_readers(path)
    for name in found.keys() - Settings.model_fields.keys() - OF_SERVICE:
        _warn_of_unknown(path, name)
    return found


@cache
def _warn_of_unknown(path: Path, name: str) -> None:
    """Say that a key of the file is no setting."""
    known = sorted({*Settings.model_fields, *OF_SERVICE})
    warning = f"warning: {path} has no setting `{shown(name)}`: {did_you_mean(name, known)}"
    print(printable(warning, 10_000), file=sys.stderr)


@cache  # the file is read for each setting of a command that is asked for
def _warn_of_readers(path: Path) -> None:
    """Say that others can read the token."""
    warning = f"warning: other users of this machine can read the token in {path}: chmod 600 {path}"
    print(printable(warning, 10_000), file=sys.stderr)
