"""Extended message selection: selectors that somebody else judges (seed 002).

"No error is returned at the time the selector is presented if IBM MQ determines that an administratively
defined subscription selector is using extended message syntax, as indicated by … SELTYPE having the value
EXTENDED. In this case, the checking of the syntax of the selection string is deferred until publish time."

Who judges is an *extended selection provider*: an object that an installed distribution names under the entry
point group `GROUP`. There is one or none. With one, it also gets every presented selector of a dialect with
extended selection that does not parse, instead of its being rejected. Without one, a message that reaches an
EXTENDED subscription is not delivered to it, with the reason MQRC_SELECTION_NOT_AVAILABLE (2551); no other
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
from selectroute.selector.errors import Fault, InvalidSelectorError, SelectRouteError
from selectroute.selector.limits import DEFAULT_LIMITS, Limits, check_length
from selectroute.selector.message import Message
from selectroute.selector.syntax.tokens import check_characters

GROUP: Final = "selectroute.extended_selection"
"""The entry point group. In the pyproject.toml of a provider::

    [project.entry-points."selectroute.extended_selection"]
    xpath = "my_package.selection:Provider"
"""


MAX_NAMES: Final = 1_000
"""Names that one selector may read, as many as a message may have properties."""


class ExtendedSelectionError(SelectRouteError):
    """Extended selection provider cannot be had: there are several, or loading the one failed."""


class ExtendedSelection(Protocol):
    """Object that an entry point names: a class, or another callable, that gives an object with these
    methods.

    An object is made once in each process and used by one thread at a time.
    """

    def identifiers(self, selector: str) -> Iterable[str]:
        """Return the names of the headers and properties that `selector` reads; ``@topic`` and ``@body`` too.

        Only these are on the messages that `matches` is given. Raises ValueError for a text that is no
        selector of this provider's either.
        """

    def matches(self, selector: str, message: Message) -> bool:
        """Return whether `message` satisfies `selector`. If it raises, this one delivery is refused."""


class Installed(NamedTuple):
    """Result of looking for a provider: it, nothing, or what is wrong."""

    provider: ExtendedSelection | None
    problem: str | None = None


@cache
def installed() -> Installed:
    """Look for the provider, once in a process."""
    found: list[EntryPoint] = list(entry_points(group=GROUP))
    if len(found) > 1:
        names = ", ".join(sorted(f"{one.name} = {one.value}" for one in found))
        return Installed(None, f"there are several extended selection providers: {names}")
    if not found:
        return Installed(None)
    try:
        return Installed(cast(ExtendedSelection, found[0].load()()))
    except Exception as error:
        name = found[0].value
        return Installed(None, f"the extended selection provider {name} cannot be loaded: {error}")


def provider() -> ExtendedSelection | None:
    """Return the installed provider, None if there is none. Raises `ExtendedSelectionError`."""
    found = installed()
    if found.problem is not None:
        raise ExtendedSelectionError(found.problem)
    return found.provider


def usable_provider() -> ExtendedSelection | None:
    """Return the installed provider; None, with a warning, also if there are several or it cannot be loaded.

    Messages are judged in the middle of a stream, where one EXTENDED subscription must not stop the others.
    """
    found = installed()
    if found.problem is not None:
        warnings.warn(f"{found.problem}; EXTENDED subscriptions get nothing", RuntimeWarning, stacklevel=2)
    return found.provider


def check_extended(selector: str, dialect: Dialect, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check what can be checked of a selector that is not parsed: that its dialect leaves any to a provider.

    Raises `ExtendedSelectionError`, and InvalidSelectorError for a text that is too long or no text.
    """
    if not dialect.extended:
        raise ExtendedSelectionError(f"a selector of the dialect {dialect.name} cannot be EXTENDED")
    if not selector:
        raise ExtendedSelectionError("an EXTENDED selector is not empty")
    try:
        check_length(selector, limits)
        check_characters(selector)
    except Fault as fault:
        raise InvalidSelectorError(
            fault.kind, selector, fault.span, hint=fault.hint, dialect=dialect.name
        ) from None


def provider_reads(selector: str) -> tuple[str, ...] | None:
    """Return what the provider reads for a selector; None without a provider, or if it is none of its own."""
    judge = usable_provider()
    if judge is None:
        return None
    try:
        names: list[object] = list(islice(judge.identifiers(selector), MAX_NAMES + 1))
    except Exception:  # whatever it is, the provider cannot tell what the selector means
        return None
    # A provider that says anything else is wrong about itself; it could only harm other subscriptions.
    texts = tuple(name for name in names if isinstance(name, str))
    return texts if len(texts) == len(names) <= MAX_NAMES else None


def provider_matches(selector: str, message: Message) -> bool | None:
    """Return the provider's verdict; None without a provider, or if it fails or gives no bool."""
    judge = usable_provider()
    if judge is None:
        return None
    try:
        verdict: object = judge.matches(selector, message)
    except Exception:  # that delivery alone is lost to it: the message goes on to every other subscriber
        return None
    # What a provider in Python returns may be anything, whatever its annotations say.
    return verdict if isinstance(verdict, bool) else None
