"""Input of commands: messages, and lines of a file or of standard input, in strict UTF-8 and of bounded
length.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import IO, Annotated, Any, NamedTuple

import typer

from selectroute.cli.exits import NOT_FOUND
from selectroute.cli.output import Add, Output, records
from selectroute.selector import Message, MessageError, SelectRouteError
from selectroute.selector.limits import MAX_LINE, MAX_LINE_BYTES
from selectroute.selector.strict_json import JsonError, parse_json

MessagesArgument = Annotated[
    str,
    typer.Argument(
        metavar="MESSAGES",
        help="A message as JSON, a file with one message or one per line, or - for standard input.",
    ),
]
SkipOption = Annotated[bool, typer.Option("--skip-bad", help="Report invalid lines, and continue.")]


@contextmanager
def opened(name: str) -> Iterator[Iterator[str]]:
    """Open the lines of a file, or of standard input for ``-``, in strict UTF-8 whatever the locale."""
    if name == "-":
        if sys.stdin is None:
            raise SelectRouteError("standard input is closed")
        if sys.stdin.isatty():
            print("selectroute: reading from the terminal; Ctrl-D on a line of its own ends", file=sys.stderr)
        yield _lines(sys.stdin.buffer, "standard input", name)
        return
    try:
        file = open(name, "rb")  # noqa: SIM115  # closed below; its errors are not those of reading
    except OSError as error:
        print(f"selectroute: {name} cannot be read: {error.strerror}", file=sys.stderr)
        raise typer.Exit(NOT_FOUND) from error
    with file:
        yield _lines(file, name, name)


def _lines(file: IO[bytes], name: str, source: str) -> Iterator[str]:
    number = 0
    try:
        while data := file.readline(MAX_LINE_BYTES + 1):  # bounds the memory for a line
            number += 1
            if len(data) > MAX_LINE_BYTES or len(line := data.decode()) > MAX_LINE:
                raise SelectRouteError(
                    f"{shown_name(source)}:{number}: the line has more than {MAX_LINE:,} characters"
                )
            yield line
            if not line.endswith("\n"):  # the last line; a terminal would need a second Ctrl-D
                return
    except UnicodeDecodeError as error:
        place = f"{shown_name(source)}:{number}"
        raise SelectRouteError(f"{place}: not valid UTF-8 at byte {error.start + 1:,}") from error
    except OSError as error:
        raise SelectRouteError(f"{name} cannot be read: {error.strerror}") from error


class InvalidFileError(SelectRouteError):
    """Invalid lines of a file: ``FILE:LINE: error`` for each; ``cause`` is the first error."""

    def __init__(self, text: str, cause: SelectRouteError) -> None:
        super().__init__(text)
        self.cause = cause


def shown_name(source: str) -> str:
    """Return a file's name as shown in errors."""
    return "<stdin>" if source == "-" else source


@contextmanager
def naming_lines(source: str) -> Iterator[None]:
    """Convert errors about lines to an `InvalidFileError`, which also names the file."""
    from selectroute.index.errors import MAX_REPORTED, InvalidLinesError
    from selectroute.registry.errors import ImportLineError

    try:
        yield
    except ImportLineError as error:
        texts = [f"{shown_name(source)}:{problem.line}: {problem.cause}" for problem in error.problems]
        if len(texts) > 1:
            least = "at least " if len(texts) == MAX_REPORTED else ""
            texts.insert(0, f"{least}{len(texts)} lines of {shown_name(source)} are invalid")
            texts.append("nothing was imported")
        raise InvalidFileError("\n".join(texts), error.cause) from error
    except InvalidLinesError as error:
        texts = [f"{shown_name(source)}:{problem.line}: {problem.sentence}" for problem in error.problems]
        more = error.count - len(texts)
        if more:
            texts.append(f"and {more:,} more")
        if error.count > 1:
            texts.insert(0, f"{error.count:,} lines of {shown_name(source)} are invalid")
        raise InvalidFileError("\n".join(texts), error.problems[0].cause) from error


class InputMessage(NamedTuple):
    """Message of an input: the number of its line (None for a whole document), its JSON on one line."""

    line: int | None
    text: str
    message: Message


class BadMessageError(SelectRouteError):
    """Line that is not a message; names the line and the reason."""


@contextmanager
def answering(source: str, skip_bad: bool, output: Output) -> Iterator[tuple[Iterator[InputMessage], Add]]:
    """Open the messages of a source (JSON text, a file with one message or one per line, or ``-`` for
    standard input), and the printer of their records: an array unless there is only one.

    An invalid message raises BadMessageError; with `skip_bad` it is reported on standard error instead.
    """
    if source.lstrip().startswith("{"):
        with records(output, several=False) as add:
            yield iter([_message("the message", None, source, _json(source))]), add
        return
    with opened(source) as lines, records(output, several=True) as add:
        yield _messages(lines, shown_name(source), skip_bad), add


def _messages(lines: Iterator[str], name: str, skip_bad: bool) -> Iterator[InputMessage]:
    """Read one message per line, or one message that spans all lines."""
    start = list(up_to_first(lines))
    error = _json(start[-1]) if start else None
    if isinstance(error, JsonError) and error.place and error.place[0] >= len(start[-1].rstrip()):
        size = sum(map(len, start))
        for line in lines:
            start.append(line)
            size += len(line)
            if size > MAX_LINE:
                break
        else:
            whole = _json("".join(start))
            if not isinstance(whole, JsonError) or not skip_bad:
                yield _message(name, None, "".join(start), whole)
                return
    for number, line in enumerate(chain(start, lines), start=1):
        if line.strip():
            try:
                yield _message(f"{name}:{number}", number, line, _json(line))
            except BadMessageError as error:
                if not skip_bad:
                    raise
                print(f"selectroute: {error}", file=sys.stderr)


def up_to_first(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines up to the first that is not blank."""
    for line in lines:
        yield line
        if line.strip():
            return


def _json(text: str) -> Any:
    """Return parsed JSON, or its error."""
    try:
        return parse_json(text)
    except JsonError as error:
        return error


def _message(place: str, line: int | None, text: str, data: Any) -> InputMessage:
    if isinstance(data, JsonError):
        raise BadMessageError(f"{place}: {data}")
    try:
        message = Message.from_json(data)
    except MessageError as error:
        raise BadMessageError(f"{place}: {error}") from error
    # Escaped, so that the JSON is independent of the encoding of standard output.
    as_given = line is not None and text.isascii()
    return InputMessage(line, text.strip() if as_given else json.dumps(data), message)
