"""Options that commands share: a dataclass whose fields `selectroute.job_options.option` declares.

A command with `takes_options` has the flags of all fields of its parameters that are such dataclasses::

    @dataclass(frozen=True, kw_only=True)
    class LookupOptions:
        \"\"\"Options of a command that looks messages up.

        Attributes:
            sequence: MsgSeqNumber in the group.
        \"\"\"

        sequence: int | None = option(None, metavar="N", range=(1, math.inf))


    @app.command()
    @takes_options
    def get(queue: NameArgument, lookup: LookupOptions) -> None: ...
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, get_args

import typer

from selectroute.job_options import REQUIRED, Option, options_of


def takes_options(command: Callable[..., None], *, rerun: bool = False) -> Callable[..., None]:
    """Return a command with flags instead of dataclasses; `rerun`: only those that `stream rerun` takes."""
    groups: dict[str, tuple[Any, list[Option]]] = {}
    parameters: list[Parameter] = []
    for name, parameter in signature(command, eval_str=True).parameters.items():
        kind: Any = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            taken = [option for option in options_of(kind).values() if option.rerun or not rerun]
            groups[name] = kind, taken
            parameters += map(_parameter, taken)
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**values: Any) -> None:
        for name, (kind, taken) in groups.items():
            values[name] = kind(**{option.name: _value(option, values.pop(option.name)) for option in taken})
        command(**values)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it
    return run


def flag_of(option: Option) -> Any:
    """Return an option as Typer declares it."""
    least, most = option.range or (None, None)
    return typer.Option(
        f"--{option.flag}",
        help=option.help,
        metavar=option.metavar,
        envvar=None if option.repeats else option.variable,  # Typer would split several values at blanks
        show_envvar=False,
        show_default=option.shown_default or option.default not in (None, "", (), REQUIRED),
        min=least,
        max=None if most == math.inf else most,
        callback=_number if float in (option.kind, *get_args(option.kind)) else None,
        autocompletion=option.complete,
        rich_help_panel=option.panel or None,
    )


def _number(number: float | None) -> float | None:
    if number is not None and math.isnan(number):
        raise typer.BadParameter("not a number of seconds")
    return number


def _parameter(option: Option) -> Parameter:
    """Return the parameter of a command that is an option."""
    kind, default = option.kind, option.default
    if option.repeats:
        kind, default = list[get_args(option.kind)[0]] | None, None  # type: ignore[misc]
    elif option.choices:
        kind = Literal[option.choices]
    annotation = Annotated[kind, flag_of(option)]  # type: ignore[valid-type]
    default = Parameter.empty if default is REQUIRED else default
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _value(option: Option, value: Any) -> Any:
    """Return the value of a field from the value that Typer parsed.

    An empty text means the default for an option with a variable, as an empty variable does.
    """
    if option.repeats:
        lines = os.environ.get(option.variable or "", "").split("\n")
        return tuple(value or filter(None, lines))
    if option.variable and value == "" and option.default is not REQUIRED:
        return option.default
    return value
