"""Python loads this at the start of each process that has this folder on its path: Spark's workers then end
at a step of a task, with the job that they belong to (see `failpoint`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

VARIABLE = "SELECTROUTE_WORKER_FAILPOINT"
"""Step, moment, how often it is met before, the file that counts this, and the process group of the job."""


def end_at(step: str, moment: str, nth: int, counter: str, group: int) -> None:
    """Kill the job and this process at the n-th time that a task takes this step, in whatever process."""
    from selectroute.kafka import tokens
    from selectroute.kafka.transactions import Transactions
    from selectroute.queues.sql.deliveries import QueueDeliveries

    owner, name = {
        "put": (QueueDeliveries, "put"),
        "begin": (Transactions, "begin"),
        "produce": (Transactions, "produce"),
        "token": (tokens, "write_token"),
        "end": (Transactions, "commit"),
    }[step]
    real: Callable[..., Any] = getattr(owner, name)

    def failing(*given: Any, **named: Any) -> Any:
        with open(counter, "ab") as file:
            file.write(b".")
        if os.path.getsize(counter) < nth:
            return real(*given, **named)
        if moment == "after":
            real(*given, **named)
        os.killpg(group, signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)

    setattr(owner, name, failing)


if VARIABLE in os.environ:
    chosen, when, often, count, job = os.environ[VARIABLE].split(" ")
    end_at(chosen, when, int(often), count, int(job))
