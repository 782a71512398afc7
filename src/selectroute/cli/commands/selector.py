"""``selectroute selector check | explain | match | dialects``: selectors and messages without an index.

Commands that register subscriptions print the warnings of ``check``, too.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import typer
from rich.table import Column, Table

from selectroute.cli.exits import FAILURE, INVALID_SELECTOR
from selectroute.cli.inputs import InputMessage, MessagesArgument, SkipOption, answering, opened
from selectroute.cli.output import Add, Output, OutputOption, json_with, plain, records
from selectroute.selector import DIALECTS, Explanation, InvalidSelectorError, Selector, Truth
from selectroute.selector.dialect import Dialect, NumberSyntax, UnknownDialectError
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.fields import PREFIX
from selectroute.selector.sentences import counted, printable
from selectroute.selector.strict_json import parse_json
from selectroute.selector.values import TYPE_NAMES, VOID, Void

if TYPE_CHECKING:
    from selectroute.clauses.analysis import SelectorWarning

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
    names = list(DIALECTS) if only is None else [dialect_name(name.strip()) for name in only.split(",")]
    shown = dialect_rows(names, differences=differences)
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


# ---- the dialects as a table

NONE: Final = "–"

_SHORT: Final = 40

_NEEDS: Final = {"negative_zero": "+", "arithmetic_on_null": "+", "between_on_null": "BETWEEN"}
"""Operator of a field: in a dialect without the operator the field has no meaning."""


class DialectRow(NamedTuple):
    """Row of the table: a field of `Dialect`, its title, and its text in each dialect, by name."""

    field: str
    title: str
    cells: dict[str, str]


def dialect_rows(names: Sequence[str] = tuple(DIALECTS), *, differences: bool = False) -> list[DialectRow]:
    """Return every field of `Dialect`, in words; a long text is shortened to its difference from the first.

    Args:
        names: the dialects to compare.
        differences: leave out the fields that are the same in all of them.
    """
    first, *others = (DIALECTS[name] for name in names)
    table = []
    for field, title, describe in _FIELDS:
        cells = {first.name: describe(getattr(first, field))}
        for other in others:
            cells[other.name] = _cell(field, describe, first, other)
        is_same = all(getattr(first, field) == getattr(other, field) for other in others)
        if not (differences and is_same):
            table.append(DialectRow(field, title, cells))
    return table


def _cell(field: str, describe: Callable[[Any], str], first: Dialect, other: Dialect) -> str:
    if _NEEDS.get(field) in other.lacks:
        return NONE
    value, base = getattr(other, field), getattr(first, field)
    text = describe(value)
    if text == describe(base):
        return text if len(text) <= _SHORT else f"as `{first.name}`"
    if isinstance(value, frozenset) and base and base & value:
        without = f", without {_listed(base - value)}" if base - value else ""
        more = f", and {_listed(value - base)}" if value - base else ""
        return f"as `{first.name}`{without}{more}"
    return text


_DOCUMENTS: Final = {
    "000": "IBM MQ, *Message selectors in JMS*",
    "001": "WebSphere MQ Everyplace, *Message selectors*",
    "002": "IBM MQ, *Message selector syntax*",
    "004": "JMS specification, chapter 3.8",
}


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _whitespace(characters: str) -> str:
    named = [_SPACES[character] for character in _SPACES if character in characters]
    others = len(characters) - len(named)
    return ", ".join(named) + (f" and {others} more of Unicode" if others else "")


_SPACES: Final = {" ": "space", "\t": "HT", "\n": "LF", "\v": "VT", "\f": "FF", "\r": "CR"}


def _numbers(syntax: NumberSyntax) -> str:
    """Return how exact and approximate literals are written."""
    bases = ", ".join(_BASES[base] for base in sorted(syntax.bases) if base != 10)
    parts = [f"decimal, {bases}" if bases else "decimal"]
    if syntax.separator:
        parts.append(f"`{syntax.separator}` between digits")
    if syntax.long_suffix:
        parts.append("`L`")
    if syntax.suffixes:
        suffixes = sorted(syntax.suffixes.items())
        parts.append(", ".join(f"`{suffix}` {TYPE_NAMES[kind]}" for suffix, kind in suffixes))
    if syntax.hexadecimal_floats:
        parts.append("`0x1.8p3`")
    if not syntax.zero_before_approximate:
        parts.append("no `010.5`, `07E3`")
    return "; ".join(parts)


_BASES: Final = {2: "binary `0b1`", 8: "octal `017`", 16: "hex `0x1F`"}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or NONE


def _fields(fields: Any) -> str:
    """Return the identifiers that read a derived field, in full only if they are few."""
    if len(fields) > 4:
        return f"{len(fields)} synonyms of header fields (*Property name restrictions*)"
    return "; ".join(f"`{name}` as {_field(field)}" for name, field in fields.items()) or NONE


def _field(field: str) -> str:
    name, _, kind = field.removeprefix(PREFIX).partition(":")
    return f"the {kind} 1 or 2" if kind else f"`{name}`"


def _ids(fields: Any) -> str:
    return "; ".join(f"`{name} = 'ID:…'` alone" for name in fields) or NONE


def _promotes(promotes: bool) -> str:
    return "after Java's binary promotion" if promotes else "only of the same type"


def _outcome_text(outcome: Truth | Void | None) -> str:
    if outcome is VOID:
        return "**the whole selector is false**"
    if outcome is None:
        return "NULL"
    return f"that operation is {outcome.name}"


def _between(outcome: Truth | None) -> str:
    return "by its equivalence" if outcome is None else f"{outcome.name}; NOT BETWEEN TRUE"


_FIELDS: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("seed", "source", _DOCUMENTS.__getitem__),
    ("whitespace", "white space", _whitespace),
    ("numbers", "numbers", _numbers),
    ("byte_strings", 'byte strings `"0x2F1C"`', _yes),
    ("reserved", "reserved words, in any case", _listed),
    ("dotted_names", "dots in names", _yes),
    ("headers", "header fields", _listed),
    ("reserved_prefix", "names reserved for headers begin with", lambda prefix: f"`{prefix}`"),
    ("property_prefixes", "except properties that begin with", _listed),
    ("name_rules", "rules on property names (IBM MQ, *Property name restrictions*)", _yes),
    ("lacks", "not in the grammar", _listed),
    ("signs_touch", "a sign touches its number", _yes),
    ("bare_conditions", "a name or TRUE alone is a condition", _yes),
    ("unlike_literals", "`1 = '1'` is a selector, always false", _yes),
    ("fields", "names read from other fields", _fields),
    ("id_fields", "24 bytes matched, not strings", _ids),
    ("int_identifiers", "an exact literal is an int for", _listed),
    ("promotes", "numbers of different types compare", _promotes),
    ("negative_zero", "arithmetic tells -0.0 from 0.0", _yes),
    ("unlike_types", "unlike types", _outcome_text),
    ("arithmetic_on_null", "arithmetic on NULL", _outcome_text),
    ("between_on_null", "BETWEEN with NULL", _between),
    ("extended", "subscriptions of type EXTENDED", _yes),
)

# ---- warnings when subscriptions are registered

CHECKED: Final = 10_000
"""Selectors of one command that are checked at most."""

_SECONDS: Final = 1.0
_SHOWN: Final = 5
_KEPT_BYTES: Final = 16 << 20


def warnings_of(row: Mapping[str, Any]) -> tuple[SelectorWarning, ...]:
    """Return the warnings of a subscription's selector; none if it is extended or too large for a check."""
    from selectroute.clauses.analysis import registered_warnings

    text, seltype = row.get("selector"), row.get("seltype")
    if not isinstance(text, str):
        return ()
    dialect = row.get("dialect") or "jms"
    return registered_warnings(text, dialect, seltype if isinstance(seltype, str) else None)


def warn_of_selector(row: Mapping[str, Any]) -> None:
    """Print the warnings of one subscription's selector on standard error."""
    warnings = warnings_of(row)
    for warning in warnings[:_SHOWN]:
        print(f"warning: {warning}", file=sys.stderr)
    if len(warnings) > _SHOWN:
        print(f"  and {len(warnings) - _SHOWN:,} more; see `selectroute selector check`", file=sys.stderr)


def warn_of_selectors(rows: Iterable[Mapping[str, Any]], total: int) -> None:
    """Print the count of selectors with probable mistakes and the first few, of those checked within a
    second. A selector that is merely not indexable is not counted.
    """
    from selectroute.clauses.analysis import NOT_INDEXABLE

    started, checked, suspects = time.perf_counter(), 0, []
    for row in rows:
        if time.perf_counter() - started > _SECONDS:
            break
        checked += 1
        warnings = [warning for warning in warnings_of(row) if warning.kind != NOT_INDEXABLE]
        if warnings:
            suspects.append(f"  {row['id']}: {warnings[0]}")
    if suspects:
        of = "" if checked == total else f" of the first {checked:,}"
        noun = "selector is" if len(suspects) == 1 else "selectors are"
        shown = suspects[:_SHOWN]
        if len(suspects) > len(shown):
            shown.append(f"  and {len(suspects) - len(shown):,} more; see `selectroute selector check`")
        print(
            "\n".join([f"warning: {len(suspects):,} {noun} probably mistaken{of}:", *shown]), file=sys.stderr
        )


class FirstLines:
    """First lines of an input, kept while another reader consumes all lines; bounded in number and bytes."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self._kept: list[str] = []
        self._bytes = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            if len(self._kept) < CHECKED and self._bytes + len(line) <= _KEPT_BYTES:
                self._kept.append(line)
                self._bytes += len(line)
            yield line

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the subscriptions of the kept lines; those without an id are named by their lines."""
        for number, line in enumerate(self._kept, start=1):
            if line.strip():
                row = parse_json(line)
                yield {**row, "id": row.get("id") or f"line {number:,}"}
