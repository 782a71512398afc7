"""Extended message selection: selectors that an installed provider judges (seed 002).

"No error is returned at the time the selector is presented if IBM MQ determines that an administratively
defined subscription selector is using extended message syntax, as indicated by … SELTYPE having the value
EXTENDED. In this case, the checking of the syntax of the selection string is deferred until publish time."

An *extended selection provider* judges them: an object that an installed distribution names under the entry
point group `GROUP`. At most one may be installed. The provider also gets every presented selector that does
not parse, in a dialect with extended selection, instead of a rejection. Without a provider, messages are not
delivered to an EXTENDED subscription, with the reason MQRC_SELECTION_NOT_AVAILABLE (2551); no other
subscription is affected.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from typing import Final, NamedTuple, Protocol, cast

from selectroute.selector.dialect import Dialect
from selectroute.selector.errors import InvalidSelectorError, SelectorFault, SelectRouteError
from selectroute.selector.limits import DEFAULT_LIMITS, Limits, check_length
from selectroute.selector.message import Message
from selectroute.selector.syntax.tokens import check_characters

GROUP: Final = "selectroute.extended_selection"
"""Entry point group. In the pyproject.toml of a provider::

    [project.entry-points."selectroute.extended_selection"]
    xpath = "my_package.selection:Provider"
"""


MAX_NAMES: Final = 1_000
"""Maximum number of names that one selector may read: the maximum of properties of a message."""


class ExtendedSelectionError(SelectRouteError):
    """Unusable extended selection provider: several are installed, or the only one failed to load."""


class ExtendedSelection(Protocol):
    """Extended selection provider: one object in each process, used by one thread at a time. The entry point
    names a class or another callable that returns it.
    """

    def identifiers(self, selector: str) -> Iterable[str]:
        """Return the names of the headers and properties that `selector` reads; ``@topic`` and ``@body`` too.

        The messages given to `matches` have only these. Raises ValueError for a text that is not a selector
        of this provider either.
        """

    def matches(self, selector: str, message: Message) -> bool:
        """Return whether `message` satisfies `selector`. An exception refuses only this delivery."""


class Installed(NamedTuple):
    """Installed provider, None, or the problem with it."""

    provider: ExtendedSelection | None
    problem: str | None = None


@cache
def installed() -> Installed:
    """Look for the provider, once in a process."""
    entries: list[EntryPoint] = list(entry_points(group=GROUP))
    if len(entries) > 1:
        names = ", ".join(sorted(f"{entry.name} = {entry.value}" for entry in entries))
        return Installed(None, f"several extended selection providers are installed, keep one: {names}")
    if not entries:
        return Installed(None)
    try:
        return Installed(cast(ExtendedSelection, entries[0].load()()))
    except Exception as error:
        name = entries[0].value
        return Installed(None, f"the extended selection provider {name} cannot be loaded: {error}")


def provider() -> ExtendedSelection | None:
    """Return the installed provider, None if there is none. Raises `ExtendedSelectionError`."""
    extension = installed()
    if extension.problem is not None:
        raise ExtendedSelectionError(extension.problem)
    return extension.provider


def usable_provider() -> ExtendedSelection | None:
    """Return the installed provider; None, with a warning, if there are several or loading failed.

    Messages are judged in the middle of a stream, where one EXTENDED subscription must not stop the others.
    """
    extension = installed()
    if extension.problem is not None:
        warnings.warn(
            f"{extension.problem}; EXTENDED subscriptions receive nothing", RuntimeWarning, stacklevel=2
        )
    return extension.provider


def check_extended(selector: str, dialect: Dialect, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check dialect, length and characters of an EXTENDED selector, which is not parsed.

    Raises `ExtendedSelectionError`; InvalidSelectorError for too long a text or half of a surrogate pair.
    """
    if not dialect.extended:
        raise ExtendedSelectionError(f"a selector of the dialect {dialect.name} cannot be EXTENDED")
    if not selector:
        raise ExtendedSelectionError("an EXTENDED selector must not be empty")
    try:
        check_length(selector, limits)
        check_characters(selector)
    except SelectorFault as fault:
        raise InvalidSelectorError(
            fault.kind, selector, fault.span, hint=fault.hint, dialect=dialect.name
        ) from None


def provider_reads(selector: str) -> tuple[str, ...] | None:
    """Return the names that the provider reads for a selector; None without one or if it rejects the text."""
    judge = usable_provider()
    if judge is None:
        return None
    try:
        names: list[object] = list(islice(judge.identifiers(selector), MAX_NAMES + 1))
    except Exception:  # any exception means that the provider rejects the selector
        return None
    # Any other answer is a bug of the provider and would only harm other subscriptions.
    texts = tuple(name for name in names if isinstance(name, str))
    return texts if len(texts) == len(names) <= MAX_NAMES else None


def provider_matches(selector: str, message: Message) -> bool | None:
    """Return the provider's verdict; None without a provider, or if it fails or gives no bool."""
    judge = usable_provider()
    if judge is None:
        return None
    try:
        verdict: object = judge.matches(selector, message)
    except Exception:  # only this delivery is lost: every other subscriber still gets the message
        return None
    # The annotations of a provider do not guarantee a bool.
    return verdict if isinstance(verdict, bool) else None
