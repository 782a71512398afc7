"""Page of a run, ``report.html``: its counts, three charts and one delivery explained, in one file.

The charts are drawn by Matplotlib as SVG inside the page: nothing is loaded, and no script runs.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import selectroute as sr
from selectroute.demo.subscriptions import DemoSubscription
from selectroute.demo.verify import Check
from selectroute.durable import disk
from selectroute.selector.explain.sentences import counted
from selectroute.spark import BatchReport

FILE: Final = "report.html"

_DAY: Final = 86_400_000
"""Milliseconds."""

_COLOURS: Final = ("#0b57d0", "#d9730d", "#2e7d32", "#8e24aa", "#616161")

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;"
    "background:#fff}figure{margin:2rem 0}svg{width:100%;height:auto}figcaption{color:#57606a}"
    "table{border-collapse:collapse}th,td{text-align:left;padding:.2rem 1.5rem .2rem 0;vertical-align:top}"
    "td.number{text-align:right}pre{background:#f3f5f7;padding:1rem;overflow-x:auto}"
)
_TOP: Final = re.compile(r"^.*?(?=<svg)", re.DOTALL)


def write_report(
    folder: Path,
    summary: dict[str, Any],
    batches: Sequence[BatchReport],
    busiest: Sequence[tuple[DemoSubscription, int]],
    check: Check,
) -> Path:
    """Write the page of a run to its folder; return its path.

    Args:
        folder: the folder of the run, with its messages and its output.
        summary: the content of ``summary.json``.
        batches: the reports of all batches.
        busiest: the subscriptions with the most deliveries, and the number of each.
        check: the outcome of the check, with the delivery that is explained.
    """
    parts = [
        _counts(summary),
        _figure(
            "Deliveries by day of the flight",
            "How many deliveries the flights of each day of the year have.",
            lambda axes: _days(axes, folder),
        ),
        _figure(
            "Busiest subscriptions",
            "The subscriptions with the most deliveries.",
            lambda axes: _bars(axes, busiest),
        ),
        _figure(
            "Seconds of each step",
            "Where the time of each batch went. Workers start in the first one.",
            lambda axes: _steps(axes, batches),
        ),
        _explained(check),
    ]
    head = f'<meta charset="utf-8"><title>selectroute demo</title><style>{_STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = f"<h1>A year of flights, routed</h1>{''.join(parts)}"
    page = f'<!doctype html>\n<html lang="en"><head>{head}{view}</head><body>{body}</body></html>\n'
    disk.replace_text(folder / FILE, page)
    return folder / FILE


def _counts(summary: dict[str, Any]) -> str:
    names = ("messages", "routed", "unrouted", "dead_lettered", "deliveries", "batches")
    rows = "".join(
        f'<tr><th scope="row">{name.replace("_", " ")}<td class="number">{summary[name]:,}' for name in names
    )
    change, verified = summary["change"], summary["verified"]
    differences = counted(len(verified["differences"]), "difference")
    return (
        f"<table>{rows}</table>"
        f"<p>{summary['options']['subscriptions']:,} subscriptions, "
        f"{summary['messages_per_second']:,} messages a second with the start of Spark's workers.</p>"
        f"<p>While messages flowed, <code>{escape(change['subscription'])}</code> was changed from "
        f"<code>{escape(change['before'])}</code> to <code>{escape(change['after'])}</code>. The change "
        f"holds from batch {change['first_batch']} on.</p>"
        f"<p>Checked by the reference evaluator: {counted(verified['judged'], 'pair')} of a message and a "
        f"subscription, {differences}.</p>"
    )


def _figure(title: str, caption: str, draw: Any) -> str:
    """Return a chart as a part of the page; its texts stay texts."""
    drawn = io.StringIO()
    # The salt makes the ids in each chart its own.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "font.family": "sans-serif"}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None, "Type": None})
    svg = _TOP.sub("", drawn.getvalue()).replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    return f"<figure><h2>{escape(title)}</h2>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _days(axes: Axes, folder: Path) -> None:
    first, counts = deliveries_by_day(folder)
    days = first + np.arange(len(counts))
    axes.plot(days, counts, color=_COLOURS[0], linewidth=1.2)
    axes.fill_between(days, counts, color=_COLOURS[0], alpha=0.15)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("deliveries")
    axes.yaxis.set_major_formatter(_thousands)


def deliveries_by_day(folder: Path) -> tuple[np.datetime64, npt.NDArray[np.int64]]:
    """Return the first day on which a message was sent, and the number of deliveries of each day from it on.

    The day is that of ``JMSTimestamp``, in UTC. O(deliveries).
    """
    days = {
        path.name: pq.read_table(path, columns=["JMSTimestamp"])["JMSTimestamp"].to_numpy() // _DAY
        for path in (folder / "messages").glob("*.parquet")
    }
    first = min(int(each.min()) for each in days.values())
    last = max(int(each.max()) for each in days.values())
    counts = np.zeros(last - first + 1, np.int64)
    for path in (folder / "output" / "deliveries").rglob("*.parquet"):
        table = pq.read_table(path, columns=["source", "offset"], partitioning=None).combine_chunks()
        sources = table["source"].combine_chunks().dictionary_encode()
        offsets = table["offset"].to_numpy()
        indices = sources.indices.to_numpy()
        for number, name in enumerate(sources.dictionary.to_pylist()):
            of_source = days[name][offsets[indices == number]] - first
            counts += np.bincount(of_source, minlength=len(counts))
    return np.datetime64(first, "D"), counts


def _bars(axes: Axes, busiest: Sequence[tuple[DemoSubscription, int]]) -> None:
    names = [one.id for one, _ in busiest]
    axes.barh(names, [count for _, count in busiest], color=_COLOURS[0])
    axes.invert_yaxis()
    axes.set_xlabel("deliveries")
    axes.xaxis.set_major_formatter(_thousands)


def _steps(axes: Axes, batches: Sequence[BatchReport]) -> None:
    names = [f"batch {one.batch}" for one in batches]
    left = np.zeros(len(batches))
    for number, step in enumerate(dict.fromkeys(name for one in batches for name in one.seconds)):
        seconds = np.array([one.seconds.get(step, 0.0) for one in batches])
        axes.barh(names, seconds, left=left, label=step, color=_COLOURS[number % len(_COLOURS)])
        left += seconds
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.legend(frameon=False)


def _thousands(value: float, _: float) -> str:
    return f"{value:,.0f}"


def _explained(check: Check) -> str:
    """Return one delivery with the truth of each part of the selector."""
    worked = check.worked
    if worked is None:
        return ""
    subscription, message = worked.subscription, worked.message
    lines = [f"topic filter {subscription.topic}"] if subscription.topic is not None else []
    lines.append(str(sr.Selector(subscription.selector).explain(message)))
    return (
        "<h2>One delivery explained</h2>"
        f"<p>Why <code>{escape(str(message.headers['JMSMessageID']))}</code> on "
        f"<code>{escape(str(message.topic))}</code> went to <code>{escape(subscription.id)}</code>:</p>"
        f"<pre>{escape(chr(10).join(lines))}</pre>"
    )
