"""``selectroute demo``: the main job on real data, without any setup."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from selectroute.cli.options import takes_options
from selectroute.extras import importing
from selectroute.job_options import option


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Options of the demo.

    Attributes:
        messages: Flights to route.
        subscriptions: Subscriptions to route them to.
        verify: Random messages to judge against every subscription by the reference evaluator.
    """

    messages: int = option(336_776, range=(1_000, 336_776))
    subscriptions: int = option(100_000, range=(1, inf))
    verify: int = option(10, range=(0, inf))


@takes_options
def demo(
    options: DemoOptions,
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
    console = Console(stderr=True, highlight=False)
    outcome = run(options.messages, options.subscriptions, options.verify, out, console)
    show(outcome, Console(highlight=False))
    if outcome.check.differences:
        raise typer.Exit(1)
