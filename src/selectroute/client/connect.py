"""Public entry point to a service, and the `Registry` that still accepts the URL of a service.

``selectroute.Registry`` is loaded from here: ``registry/`` is below ``client/`` and can't import it, so this
module gives `Registry.open` the function that opens a service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selectroute.client.limits import TIMEOUT_SECONDS
from selectroute.extras import importing
from selectroute.registry.registry import Registry
from selectroute.selector.arguments import check_argument

if TYPE_CHECKING:
    from selectroute.client.registry import RemoteRegistry

__all__ = ["Registry", "connect"]


def connect(
    url: str, *, token: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS
) -> RemoteRegistry:
    """Open the registry of a service; its queues are ``connect(url).queues()``. Close it, or use it in a
    ``with``.

    Args:
        url: of the service, ``http(s)://host:port``. Nothing is sent before the first call.
        token: the secret of a bearer token; None where the service needs none.
        timeout_seconds: the longest that a response may take.

    Raises:
        RegistryError: the URL is not a service's, or the token has invalid characters.
    """
    check_argument(url, str, "url", "http://HOST:PORT or https://…")
    with importing():
        from selectroute.client.registry import RemoteRegistry  # loads httpx, which a database does not need

    return RemoteRegistry(url, token, timeout_seconds=timeout_seconds)


Registry.services_are_opened_by(lambda url, token: connect(url, token=token))
