"""``python -m selectroute`` is the command ``selectroute``."""

from __future__ import annotations

import os
import signal

# Before anything is loaded that takes a moment: Ctrl-C meanwhile is no traceback either.
signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))


def main() -> None:
    """Run a command and exit with its code."""
    from selectroute.cli import main as command

    command()


if __name__ == "__main__":
    main()
