"""An extended selection provider, installed as a real one is: a module and the entry point that names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selectroute.selector import extended
from selectroute.selector.extended import GROUP

MODULE = '''
class Provider:
    """`has <name>` is true of a message with that property; `fail <name>` cannot be judged."""

    def identifiers(self, selector):
        verb, name = selector.split()
        return [name]

    def matches(self, selector, message):
        verb, name = selector.split()
        if verb == "fail":
            raise RuntimeError(selector)
        held = {"@topic": message.topic, "@body": message.body}
        return (held[name] if name in held else message.value(name)) is not None
'''


def write(folder: Path) -> Path:
    """Write the distribution into a folder, which has to be on Python's path."""
    metadata = folder / "has_selection-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "has_selection.py").write_text(MODULE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: has-selection\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\nhas = has_selection:Provider\n")
    return folder


@contextmanager
def installed(folder: Path) -> Iterator[None]:
    """Install the provider into this process."""
    sys.path.insert(0, str(write(folder)))
    extended.installed.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("has_selection", None)
        extended.installed.cache_clear()


@contextmanager
def installed_in_workers(spark: object, folder: Path) -> Iterator[None]:
    """Install it into the workers of a session, too: Spark starts others for another environment."""
    environment = spark.sparkContext.environment  # type: ignore[attr-defined]
    with installed(folder):
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = str(folder)
        try:
            yield
        finally:
            del environment["PYTHONPATH"]
            if before is not None:
                environment["PYTHONPATH"] = before
