"""``selectroute demo``: the main job on real data, without any setup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from selectroute.extras import importing


def demo(
    messages: Annotated[int, typer.Option(min=1_000, max=336_776, help="Flights to route.")] = 336_776,
    subscriptions: Annotated[int, typer.Option(min=1, help="Subscriptions to route them to.")] = 100_000,
    verify: Annotated[
        int,
        typer.Option(
            min=0, help="Random messages to judge against every subscription by the reference evaluator."
        ),
    ] = 10,
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder; by default ./selectroute-demo, or ./selectroute-demo-2 and so on."),
    ] = None,
) -> None:
    """Route a year of real flights to 100,000 subscribers through Spark, and check the result.

    One subscription is changed while the stream runs. The demo ends with tables, with charts for a browser
    (`report.html`), and with commands that read its output. Exit code 1: a delivery is missing or wrong.
    """
    # Not at the top: other commands must not wait for the import of Spark and Arrow.
    with importing("demo"):
        from selectroute.demo.report import show
        from selectroute.demo.run import run
    outcome = run(messages, subscriptions, verify, out, Console(stderr=True, highlight=False))
    show(outcome, Console(highlight=False))
    if outcome.check.differences:
        raise typer.Exit(1)
