"""``selectroute demo``: the main job on real data, without any setup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from selectroute.extras import importing


def demo(
    messages: Annotated[int, typer.Option(help="Flights to route, at most 336,776.")] = 336_776,
    subscriptions: Annotated[int, typer.Option(help="Subscriptions to route them to.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of the subscriptions and of the check.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A new or empty folder; by default ./selectroute-demo, or ./selectroute-demo-2 and so on.",
            show_default=False,
        ),
    ] = None,
    verify: Annotated[
        int,
        typer.Option(help="Random messages to judge against every subscription by the reference evaluator."),
    ] = 10,
    cores: Annotated[
        int | None, typer.Option(help="Cores that Spark may use; all of them by default.", show_default=False)
    ] = None,
) -> None:
    """Route a year of real flights to 100,000 subscribers through Spark, and check the result."""
    # Not at the top: other commands must not wait for the import of Spark and Arrow.
    with importing("demo"):
        from selectroute.demo.progress import Progress
        from selectroute.demo.report import show
        from selectroute.demo.run import Options, run
    outcome = run(Options(messages, subscriptions, seed, out, verify, cores), Progress())
    show(outcome, Console(highlight=False))
    if outcome.check.differences:
        raise typer.Exit(1)
