"""Reference of the commands, made by Typer from their help."""

from __future__ import annotations

import html
import re
from typing import Final

import typer
from typer.cli import get_docs_for_click

from docs.site.pages import slug
from selectroute.cli import app

_HEADING: Final = re.compile(r"(#+) `(.*)`")
_COMMAND: Final = re.compile(r"\* `([a-z][\w-]*)`: .*")
_EXAMPLE: Final = re.compile(r"(?:selectroute|RUN|export) .*")


def commands() -> str:
    """Return the reference as Markdown: a heading for each noun, and below it one for each verb."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="selectroute")
    text = html.unescape(get_docs_for_click(obj=command, ctx=context, name="selectroute"))
    lines: list[str] = []
    heading, in_code = "selectroute", False
    for line in text.removeprefix("# `selectroute`\n").splitlines():
        in_code ^= line.startswith("```")
        if found := _HEADING.fullmatch(line):
            heading = found[2]
            lines.append(f"{found[1]} {heading}")
        elif found := _COMMAND.fullmatch(line):  # its sentence is cut here, and whole at its own heading
            lines.append(f"* [`{found[1]}`](#{slug(f'{heading} {found[1]}')})")
        elif not in_code and _EXAMPLE.fullmatch(line):
            lines += ["```docker" if line.startswith("RUN") else "```shell", line, "```"]
        else:
            lines.append(line.rstrip())
    # Examples that follow each other are one block.
    return "\n".join(lines).strip().replace("\n```\n\n```shell\nselectroute ", "\nselectroute ")
