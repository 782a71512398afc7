"""Outcomes of a job, whatever their format is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa


def published_files(table: Path) -> list[Path]:
    """The files of a table of outcomes: of a Delta table those that are in it now."""
    if not (table / "_delta_log").is_dir():
        return sorted(table.glob("batch=*/*.parquet"))
    from deltalake import DeltaTable

    names = pa.table(DeltaTable(str(table)).get_add_actions())["path"].to_pylist()
    return sorted(table / name for name in names)


def commits_of(output: Path) -> dict[int, dict[str, Any]]:
    """The commits of a job by their batches."""
    return {int(path.stem): json.loads(path.read_text()) for path in (output / "_commits").glob("*.json")}


def check_pins(output: Path, commits: Mapping[int, Mapping[str, Any]]) -> None:
    """Check that each batch used the revision to which it was pinned, and that revisions go up."""
    for batch, commit in commits.items():
        pin = json.loads((output / "pins" / f"{batch}.json").read_text())
        assert (pin["revision"], pin["digest"]) == (commit["revision"], commit["digest"]), batch
    revisions = [commits[batch]["revision"] for batch in sorted(commits)]
    assert revisions == sorted(revisions), "revisions go up from batch to batch"
