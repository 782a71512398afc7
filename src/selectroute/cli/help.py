"""Help texts that fit 80 columns: an option with its value in one column, its text in the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

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
"""Verbs that mean nearly the same; of each noun one is a command."""


class CommandGroup(TyperGroup):
    """Group of commands with help in two columns, which knows what is meant by a misspelt command."""

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
    """Return the only command that begins so, another word for the same, or one that is spelt nearly so."""
    longer = [command for command in known if command.startswith(name)]
    same = [verb for verbs in _SAME if name in verbs for verb in verbs if verb in known]
    return longer[0] if len(longer) == 1 else same[0] if same else nearest(name, known)


def readable(app: typer.Typer) -> None:
    """Use these help texts for all commands of an application, including those of its groups."""
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
