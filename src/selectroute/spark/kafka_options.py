"""What is said of Kafka on a command line and in files: clients' settings, and a binding."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from selectroute.kafka.binding import KafkaBinding, KafkaBindingError
from selectroute.spark.kafka_input import SETTING, KafkaCluster
from selectroute.spark.sources import SourceError

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
