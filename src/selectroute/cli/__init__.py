"""The command line: ``selectroute NOUN VERB``. Results on standard output, progress and errors on standard
error.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

import typer

from selectroute.cli import index, registry, selector, subscription, token
from selectroute.cli.demo import demo
from selectroute.cli.serve import serve
from selectroute.cli.subscription_explain import explain
from selectroute.cli.subscription_files import export, import_
from selectroute.selector import InvalidSelectorError, SelectRouteError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(demo)
app.command()(serve)
subscription.app.command("import")(import_)
subscription.app.command()(export)
subscription.app.command()(explain)
app.add_typer(selector.app, name="selector")
app.add_typer(index.app, name="index")
app.add_typer(subscription.app, name="subscription")
app.add_typer(registry.app, name="registry")
app.add_typer(token.app, name="token")

FAILURE, NOT_FOUND, CONFLICT, INVALID_SELECTOR = 1, 3, 4, 5
"""Exit codes; 2 is wrong usage."""


@app.callback()
def _root() -> None:
    """Route messages to every subscription whose topic filter and selector they satisfy."""


def main() -> None:
    """Run a command and exit with its code; an error of this package is one message, no traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a selector may hold what the terminal cannot show
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # when the interpreter exits, a full disk would be no error of ours
    except SelectRouteError as error:
        print("\n".join([f"selectroute: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        sys.exit(_exit_code(error))
    except OSError as error:
        _discard_output()
        if not isinstance(error, BrokenPipeError):  # a reader that went away wants to know nothing
            what = error.filename or "a result cannot be written"
            print(f"selectroute: {what}: {error.strerror or error}", file=sys.stderr)
        sys.exit(FAILURE)


def _discard_output() -> None:
    """What is still buffered for standard output would fail once more when the interpreter exits."""
    with suppress(OSError):  # it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit_code(error: SelectRouteError) -> int:
    # Loaded here because most commands need no index, and this one needs Arrow.
    from selectroute.index.errors import RevisionExistsError, SnapshotNotFoundError
    from selectroute.registry import errors as registry_errors

    while isinstance(error, registry_errors.ImportLineError | registry_errors.OperationError):
        error = error.cause
    codes: dict[tuple[type[SelectRouteError], ...], int] = {
        (InvalidSelectorError,): INVALID_SELECTOR,
        (SnapshotNotFoundError, registry_errors.NotFoundError): NOT_FOUND,
        (RevisionExistsError, registry_errors.NameTakenError, registry_errors.IdTakenError): CONFLICT,
        (registry_errors.StaleRevisionError, registry_errors.IdempotencyConflictError): CONFLICT,
    }
    return next((code for kinds, code in codes.items() if isinstance(error, kinds)), FAILURE)
