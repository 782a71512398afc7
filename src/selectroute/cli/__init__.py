"""Command line ``selectroute NOUN VERB``: results on standard output, all else on standard error."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from selectroute import __version__
from selectroute.cli.commands import (
    dead_letter,
    index,
    message,
    queue,
    registry,
    selector,
    stream,
    subscription,
    token,
)
from selectroute.cli.commands.broker import broker
from selectroute.cli.commands.demo import demo
from selectroute.cli.commands.serve import serve
from selectroute.cli.commands.stream import deliveries, explain, unrouted
from selectroute.cli.commands.stream_run import rerun, run
from selectroute.cli.commands.subscription import export, import_
from selectroute.cli.commands.warm import warm
from selectroute.cli.exits import (
    EPILOG,
    FAILURE,
    INTERRUPTED,
    Interrupted,
    exit_code,
    interruptible,
    interruption_kept,
)
from selectroute.extras import importing
from selectroute.selector import InvalidSelectorError, SelectRouteError
from selectroute.selector.errors import nearest


class Command(TyperCommand):
    """Command whose help has two columns instead of four with types such as ``<str>``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; remove the prefix of Typer's parser from errors."""
        try:
            return list(super().parse_args(ctx, args))
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help in two columns."""
        _prepare(self, ctx)
        super().format_help(ctx, formatter)


_SAME: Final = (
    ("remove", "delete", "revoke", "rm", "purge", "drop"),
    ("list", "ls", "all"),
    ("get", "show", "describe", "info", "status", "stats"),
    ("add", "create", "new", "register", "put"),
    ("replace", "update", "edit", "set"),
)
"""Synonyms: each noun has one of them as a command."""


class CommandGroup(TyperGroup):
    """Group of commands with help in two columns, which suggests the command for a misspelt one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; for an unknown one, name the command that was probably meant."""
        known = self.list_commands(ctx)
        if (name := args[0].lower()) not in known and (meant := _meant(name, known)) is not None:
            ctx.fail(f"There is no command {args[0]!r}: did you mean '{meant}'?")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help in two columns."""
        _prepare(self, ctx)
        super().format_help(ctx, formatter)


def _meant(name: str, known: Sequence[str]) -> str | None:
    """Return the only command with this prefix, a synonym, or the nearest spelling; None without any."""
    longer = [command for command in known if command.startswith(name)]
    same = [verb for verbs in _SAME if name in verbs for verb in verbs if verb in known]
    return longer[0] if len(longer) == 1 else same[0] if same else nearest(name, known)


def readable(app: typer.Typer) -> None:
    """Use these classes for all commands of an application and of its groups."""
    app.info.cls = CommandGroup
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        group.cls = CommandGroup
        if group.typer_instance is not None:
            readable(group.typer_instance)


def _prepare(command: Any, ctx: Any) -> None:
    """Modify a command before its help is printed, after which the process ends."""
    command.help = _wrapped(command.help)
    for subcommand in getattr(command, "commands", {}).values():
        subcommand.help = _wrapped(subcommand.help)
    for parameter in command.get_params(ctx):
        _shorten(parameter)


def _wrapped(text: str | None) -> str | None:
    """Return a docstring with each paragraph on one line."""
    return None if text is None else "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _shorten(parameter: Any) -> None:
    """Join all names of an option and its value, list its choices in its text, and omit types."""
    kind = getattr(parameter, "type_descriptor", None) or getattr(parameter, "type", None)
    if (choices := getattr(kind, "choices", None)) and not parameter.metavar:
        named = ", ".join(str(getattr(choice, "value", choice)) for choice in choices)
        parameter.help = f"{parameter.help or ''} ({named})".strip()
    if parameter.param_type_name == "option":
        names = [*parameter.opts, *parameter.secondary_opts]
        parameter.opts = [" ".join(filter(None, (", ".join(names), parameter.metavar)))]
        parameter.secondary_opts = []
    parameter.display_type_rich = lambda ctx: None
    parameter._get_number_range_help_str = lambda: ""


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, epilog=EPILOG)
app.command()(demo)
app.command()(serve)
app.command()(broker)
app.command()(warm)
stream.app.command()(run)
stream.app.command()(rerun)
stream.app.command()(deliveries)
stream.app.command()(unrouted)
stream.app.command()(explain)
subscription.app.command("import")(import_)
subscription.app.command()(export)
app.add_typer(selector.app, name="selector")
app.add_typer(message.app, name="message")
app.add_typer(index.app, name="index")
app.add_typer(subscription.app, name="subscription")
app.add_typer(queue.app, name="queue")
app.add_typer(registry.app, name="registry")
app.add_typer(token.app, name="token")
app.add_typer(stream.app, name="stream")
app.add_typer(dead_letter.app, name="dead-letter")

readable(app)

_MQ_SENTENCES: Final = {
    2033: "no message matches",
    2035: "not authorised",
    2053: "the queue is full",
    2055: "the queue still has messages",
    2085: "there is no such queue",
    2100: "the queue exists already",
}
"""Texts of errors without a detail."""


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"selectroute {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Route messages to every subscription whose topic filter and selector they satisfy."""


def main() -> None:
    """Run a command and exit with its code; an error of this package prints a message without a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for characters that the terminal cannot show
    interruptible()
    try:
        try:
            with interruption_kept(), importing():
                app(prog_name="selectroute")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # report a full disk here, not at the interpreter's exit
    except (Interrupted, KeyboardInterrupt):  # the latter while a library handles the signal
        print("selectroute: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except SelectRouteError as error:
        print(
            "\n".join([f"selectroute: {_text_of(error)}", *getattr(error, "__notes__", ())]), file=sys.stderr
        )
        sys.exit(exit_code(error))
    except OSError as error:
        _discard_output()
        if not isinstance(error, BrokenPipeError):  # the reader has closed the pipe
            what = error.filename or "a result cannot be written"
            print(f"selectroute: {what}: {error.strerror or error}", file=sys.stderr)
        sys.exit(FAILURE)


def _text_of(error: SelectRouteError) -> str:
    """Return the text of an error; for one of a queue, a sentence and then IBM's name."""
    from selectroute.queues.errors import REASONS, MQError

    if isinstance(error.__cause__, InvalidSelectorError):
        return str(error.__cause__)  # which shows the place in the selector
    if not isinstance(error, MQError) or error.reason not in REASONS:
        return str(error)
    sentence = (
        error.detail or _MQ_SENTENCES.get(error.reason) or REASONS[error.reason].replace("_", " ").lower()
    )
    return f"{sentence} (MQRC {error.reason} MQRC_{REASONS[error.reason]})"


def _discard_output() -> None:
    """Discard buffered standard output, which would fail again when the interpreter exits."""
    with suppress(OSError):  # not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
