"""``selectroute selector check | explain | match | dialects``: selectors and messages without an index."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.table import Column, Table

from selectroute.cli.exit_codes import FAILURE, INVALID_SELECTOR
from selectroute.cli.inputs import InputMessage, MessagesArgument, SkipOption, answering, opened
from selectroute.cli.output import Add, Output, OutputOption, json_with, plain, records
from selectroute.selector import DIALECTS, Explanation, InvalidSelectorError, Selector, Truth
from selectroute.selector.dialect import UnknownDialectError
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.sentences import counted, printable

app = typer.Typer(no_args_is_help=True, help="Check, explain and match selectors; compare the dialects.")

_FILE_NAME: Final = re.compile(r"\S+\.(?:txt|sel|selector|selectors|sql|csv|jsonl?|ya?ml|toml)")


def dialect_name(name: str) -> str:
    """Return the name of a dialect. Raises BadParameter if it is unknown."""
    try:
        return dialect_named(name).name
    except UnknownDialectError as error:
        raise typer.BadParameter(str(error)) from error


DialectOption = Annotated[
    str,
    typer.Option(
        help=f"One of {', '.join(DIALECTS)}; see `selector dialects`.",
        envvar="SELECTROUTE_DIALECT",
        callback=dialect_name,
    ),
]
SelectorArgument = Annotated[
    str, typer.Argument(help="A selector; write -- before one that begins with a dash.")
]


@app.command()
def check(
    selector: Annotated[
        str | None, typer.Argument(help="A selector; - reads one per line from standard input.")
    ] = None,
    file: Annotated[str | None, typer.Option(help="Check the selectors of a file, one a line.")] = None,
    dialect: DialectOption = "jms",
    output: OutputOption = Output.table,
) -> None:
    """Check a selector: show its error, or its identifiers, its index keys and probable mistakes.

    selectroute selector check "JMSPriority > 9 OR color = 'red'"

    Exit code 5 if any selector is invalid.
    """
    if (selector is None) == (file is None):
        raise typer.BadParameter("give a selector, - or --file", param_hint="SELECTOR")
    valid = True
    if file is None and selector is not None and selector != "-":
        with records(output, several=False) as add:
            valid = _checked(None, selector, dialect, output, add)
        if not valid and _names_a_file(selector):
            typer.echo(
                f"selectroute: to check the selectors of a file: --file {printable(selector)}", err=True
            )
    else:
        with opened(file or "-") as lines, records(output, several=True) as add:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    valid &= _checked(number, line.rstrip("\r\n"), dialect, output, add)
    if not valid:
        raise typer.Exit(INVALID_SELECTOR)


def _names_a_file(text: str) -> bool:
    """Return whether an invalid selector was probably meant as the name of a file."""
    if _FILE_NAME.fullmatch(text):
        return True
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or a NUL
        return False


def _checked(line: int | None, text: str, dialect: str, output: Output, add: Add) -> bool:
    from selectroute.clauses.analysis import check as analysis_of

    data: dict[str, Any] = {"selector": text} if line is None else {"line": line, "selector": text}
    try:
        analysis = analysis_of(text, dialect)
    except InvalidSelectorError as error:
        valid, shown = False, str(error)
        data |= {"valid": False, "error": error.to_dict()}
    else:
        valid, shown = True, str(analysis)
        data |= {"valid": True, **analysis.to_dict()}
    if output is Output.table:
        add(shown if line is None else f"line {line:,}: {printable(text)}\n{_indented(shown)}\n")
    else:
        add(json.dumps(data))
    return valid


@app.command()
def explain(
    selector: SelectorArgument,
    messages: MessagesArgument,
    dialect: DialectOption = "jms",
    output: OutputOption = Output.table,
    skip_bad: SkipOption = False,
) -> None:
    """Explain why a selector is true, false or unknown for messages: each truth value, value and type.

    selectroute selector explain "weight > 2500" '{"properties": {"weight": "3000"}}'
    """
    judged = Selector(selector, dialect)
    with answering(messages, skip_bad, output) as (inputs, add):
        for entry in inputs:
            explanation = judged.explain(entry.message)
            if output is not Output.table:
                add(_as_json(entry, explanation))
            elif entry.line is None:
                add(str(explanation))
            else:
                verdict = "matches" if explanation.truth is Truth.TRUE else "does not match"
                add(f"line {entry.line:,} {verdict}\n{_indented(str(explanation))}\n")


def _as_json(entry: InputMessage, explanation: Explanation) -> str:
    matched = explanation.truth is Truth.TRUE
    head = {"matched": matched, "sentences": list(explanation.sentences)}
    if entry.line is not None:
        head = {"line": entry.line, **head}
    return json_with(head, "explanation", explanation.to_json())


@app.command()
def match(
    selector: SelectorArgument,
    messages: MessagesArgument,
    dialect: DialectOption = "jms",
    output: OutputOption = Output.table,
    skip_bad: SkipOption = False,
) -> None:
    """Print the messages that a selector selects: their lines and ids, or with -o ndjson the messages.

    selectroute selector match "weight > 2500" messages.jsonl -o ndjson

    Exit code 1 if there is none.
    """
    judged = Selector(selector, dialect)
    matched = total = 0
    with answering(messages, skip_bad, output) as (inputs, add):
        for entry in inputs:
            total += 1
            if judged.matches(entry.message):
                matched += 1
                add(_named(entry) if output is Output.table else entry.text)
        if output is Output.table:
            add(f"{matched:,} of {counted(total, 'message')}")
    if not matched:
        raise typer.Exit(FAILURE)


def _named(entry: InputMessage) -> str:
    """Return the line, id and topic of a message for people."""
    id_, topic = entry.message.value("JMSMessageID"), entry.message.topic
    parts = [
        "the message" if entry.line is None else f"line {entry.line:,}",
        "" if id_ is None else printable(str(id_)),
        "" if topic is None else f"on {printable(topic)}",
    ]
    return "  ".join(filter(None, parts))


@app.command()
def dialects(
    output: Annotated[
        Literal["table", "json"], typer.Option("-o", "--output", help="As text or JSON.")
    ] = "table",
    only: Annotated[
        str | None, typer.Option(metavar="DIALECT,…", help="Only these dialects.", show_default="all")
    ] = None,
    differences: Annotated[
        bool, typer.Option("--differences", help="Only rows that differ between the shown dialects.")
    ] = False,
) -> None:
    """Compare the dialects, each with the document that specifies it.

    selectroute selector dialects --only ibm-mq,jms --differences
    """
    from selectroute.cli.dialect_table import rows

    names = list(DIALECTS) if only is None else [dialect_name(name.strip()) for name in only.split(",")]
    shown = rows(names, differences=differences)
    if output == "json":
        print(json.dumps([row._asdict() for row in shown]))
    else:
        table = Table(
            Column("", overflow="fold"),
            *(Column(name, overflow="fold") for name in names),
            box=None,
            show_lines=True,
            padding=(0, 1, 1, 0),
        )
        for row in shown:
            cells = (_unmarked(cell) for cell in row.cells.values())
            table.add_row(_unmarked(row.title), *cells)
        plain().print(table)


def _unmarked(cell: str) -> str:
    """Return a cell of the table without Markdown."""
    return re.sub(r"\*\*|(?<!`)\*(?!`)", "", cell).replace("`", "")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
