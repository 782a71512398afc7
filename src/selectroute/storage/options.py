"""Settings of storage for clients other than ours: Delta's library, in Rust, reads the environment itself."""

from __future__ import annotations

import os

from selectroute.storage.errors import StorageError


def client_options(url: str) -> dict[str, str]:
    """Return the settings that Delta's library does not find by itself.

    Raises:
        StorageError: there is a profile in ``~/.aws``, and its credentials can't be read.
    """
    if not url.startswith(("s3:", "s3a:")):
        return {}
    found: dict[str, str] = {"conditional_put": "etag"}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if endpoint.startswith("http://"):
        found["allow_http"] = "true"
    from selectroute.storage.objects import profile  # needs the extra `storage`

    if (provider := profile()) is not None:
        try:
            given = provider()
        except Exception as error:
            raise StorageError(f"{url}: no credentials were found: {error}") from error
        names = {"access_key_id": "aws_access_key_id", "secret_access_key": "aws_secret_access_key"}
        names["token"] = "aws_session_token"
        found |= {names[name]: str(given[name]) for name in names if given.get(name)}
    return found
