"""Picture of the way of a message, drawn as SVG. It is readable on light and on dark pages."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from docs.site.pages import DOCS

PATH: Final = DOCS / "pictures" / "way-of-a-message.svg"

_WIDTH, _HEIGHT = 960, 304
_STYLE: Final = """\
text{font:14px system-ui,sans-serif;fill:#24292f}
.title{font-weight:600}.small{font-size:12px;fill:#57606a}
rect{fill:#f6f8fa;stroke:#8c959f;rx:8}
.engine rect{fill:#ddf4ff;stroke:#0969da}
path{fill:none;stroke:#57606a;stroke-width:1.5;marker-end:url(#tip)}
#tip path{fill:#57606a;stroke:none;marker-end:none}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.small{fill:#9da7b3}rect{fill:#161b22;stroke:#6e7681}
.engine rect{fill:#0c2d6b;stroke:#58a6ff}path{stroke:#9da7b3}#tip path{fill:#9da7b3}}"""


class Box(NamedTuple):
    """Box of the picture: its place, its title, and the lines below the title."""

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...]

    def svg(self) -> str:
        """Return the box as SVG."""
        texts = [f'<text class="title" x="{self.x + 14}" y="{self.y + 25}">{escape(self.title)}</text>']
        for number, line in enumerate(self.lines):
            y = self.y + 47 + 19 * number
            texts.append(f'<text class="small" x="{self.x + 14}" y="{y}">{escape(line)}</text>')
        place = f'x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}"'
        return f"<g><rect {place}/>{''.join(texts)}</g>"


_PEOPLE: Final = (
    Box(
        20, 20, 250, 84, "Subscribers", ("JMSType = 'car' AND weight > 2500", "on the topics cars/+")
    ),
    Box(350, 20, 250, 84, "Registry", ("each change is a revision", "HTTP, commands, Python, console")),
    Box(680, 20, 260, 84, "Snapshot of a revision", ("flat arrays, mapped by all", "processes of a machine")),
)  # fmt: skip
_ENGINE: Final = (
    Box(20, 175, 190, 108, "Messages", ("files: Parquet, JSON", "Kafka", "a streaming DataFrame")),
    Box(270, 175, 190, 108, "Batch", ("pinned to one revision;", "a repeat of it has", "the same one")),
    Box(520, 175, 180, 108, "Match", ("one key for each tuple", "of equalities, then a", "binary search")),
    Box(760, 175, 180, 108, "Deliveries", ("committed once:", "folders, Delta tables,", "queues, topics")),
)
_ARROWS: Final = (
    "M270 62 H342", "M600 62 H672", "M810 104 V140 H610 V167",
    "M210 229 H262", "M460 229 H512", "M700 229 H752",
)  # fmt: skip


def draw() -> str:
    """Return the picture as SVG."""
    people = "\n".join(box.svg() for box in _PEOPLE)
    engine = "\n".join(box.svg() for box in _ENGINE)
    arrows = "".join(f'<path d="{one}"/>' for one in _ARROWS)
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker>'
    )
    title = "The way of a message through selectroute"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{title}">\n<title>{title}</title>\n<style>{_STYLE}</style>\n<defs>{tip}</defs>\n'
        f'{people}\n<g class="engine">\n{engine}\n</g>\n{arrows}\n</svg>\n'
    )


def write() -> list[Path]:
    """Write the picture; return its path if it changed."""
    if PATH.exists() and PATH.read_text(encoding="utf-8") == draw():
        return []
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(draw(), encoding="utf-8")
    return [PATH]
