"""Generated parts of the pages, each between ``<!-- name -->`` and ``<!-- /name -->``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from docs.site import tables
from docs.site.calls import calls
from docs.site.commands import commands
from docs.site.licences import licences
from docs.site.names import names
from docs.site.pages import DOCS

PARTS: Final[Mapping[tuple[str, str], Callable[[], str]]] = MappingProxyType(
    {
        ("reference/cli.md", "commands"): commands,
        ("reference/http.md", "calls"): calls,
        ("reference/python.md", "names"): names,
        ("reference/selectors.md", "dialects"): tables.dialects,
        ("reference/configuration.md", "settings"): tables.settings,
        ("reference/configuration.md", "options"): tables.job_options,
        ("how-to/kafka.md", "settings"): tables.kafka_settings,
        ("reference/formats.md", "formats"): tables.formats,
        ("reference/errors.md", "kinds"): tables.kinds,
        ("reference/errors.md", "warnings"): tables.warnings,
        ("reference/errors.md", "reasons"): tables.reasons,
        ("reference/errors.md", "problems"): tables.problems,
        ("reference/licences.md", "licences"): licences,
        ("reference/limits.md", "limits"): tables.limits,
        ("reference/metrics.md", "job"): tables.job_metrics,
        ("reference/metrics.md", "service"): tables.service_metrics,
        ("explanation/how-matching-works.md", "drawing"): tables.drawing,
    }
)
"""What makes each part, by its page and name."""


def written(page: str, name: str) -> str:
    """Return a part as it is in its page."""
    return _part(name).split((DOCS / page).read_text(encoding="utf-8"))[2].rstrip("\n")


def write() -> list[Path]:
    """Write all parts into their pages; return the pages that changed."""
    changed = []
    for (page, name), make in PARTS.items():
        path = DOCS / page
        text = path.read_text(encoding="utf-8")
        before, begin, _, end, after = _part(name).split(text)
        new = f"{before}{begin}{make()}\n{end}{after}"
        if new != text:
            path.write_text(new, encoding="utf-8")
            changed.append(path)
    return changed


def _part(name: str) -> re.Pattern[str]:
    return re.compile(f"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)", re.DOTALL)
