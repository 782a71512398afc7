"""Command ``selectroute`` as ``python -m selectroute``."""

from __future__ import annotations

import os
import signal

# Before the slow imports, so that Ctrl-C during them does not print a traceback.
signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))


def main() -> None:
    """Run a command and exit with its code."""
    from selectroute.cli import main as command

    command()


if __name__ == "__main__":
    main()
