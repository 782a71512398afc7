"""Process that checks lines of an import: Arrow batches of lines on standard input, of results on standard
output.

Started by ``helpers``, with the limits and the permission as JSON.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any, Final

import pyarrow as pa

from selectroute.registry.authorization import Permission
from selectroute.registry.bulk.checking import CheckedLines, checked_lines
from selectroute.registry.errors import ImportLineError
from selectroute.selector.limits import Limits
from selectroute.topics.filter import TopicFilter

LINES: Final = pa.schema({"number": pa.int64(), "line": pa.binary()})
"""Lines of a block."""

_NUMBERS: Final = pa.large_list(pa.int64())

RESULTS: Final = pa.schema(
    {"numbers": _NUMBERS, "literals": _NUMBERS, "lengths": _NUMBERS, "text": pa.large_binary()}
)
"""`CheckedLines` of a block, a row; no row if a line is invalid, which the caller then finds again."""


def arguments(limits: Limits, by: Permission) -> str:
    """Return the argument of the process."""
    topics = None if by.topics is None else [topic_filter.text for topic_filter in by.topics]
    return json.dumps(
        {
            "limits": [limits.length, limits.nesting, limits.items],
            "permission": {"topics": topics, "queues": by.queues, "kafka": by.kafka},
        }
    )


def _arguments(text: str) -> tuple[Limits, Permission]:
    """Invert `arguments`."""
    data = json.loads(text)
    topics, queues, kafka = (
        None if patterns is None else tuple(patterns) for patterns in data["permission"].values()
    )
    filters = None if topics is None else tuple(map(TopicFilter.parse, topics))
    return Limits(*data["limits"]), Permission(filters, queues, kafka)


def to_batch(checked: CheckedLines) -> pa.RecordBatch:
    """Return the result of a block as a batch of one row."""
    numbers = [pa.array(column) for column in checked[:3]]
    lists = [
        pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values) for values in numbers
    ]
    return pa.record_batch([*lists, pa.array([checked.text], pa.large_binary())], schema=RESULTS)


def of_batch(batch: pa.RecordBatch) -> CheckedLines:
    """Invert `to_batch`, without copying the text."""
    numbers, literals, lengths = (batch.column(number).values.to_numpy() for number in range(3))
    return CheckedLines(numbers, literals, lengths, batch.column(3)[0].as_buffer())


def main(argument: str) -> None:
    """Check the blocks of standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the parent, which then ends this process
    limits, by = _arguments(argument)
    output: Any = sys.stdout.buffer
    with pa.ipc.open_stream(sys.stdin.buffer) as blocks, pa.ipc.new_stream(output, RESULTS) as results:
        for block in blocks:
            lines = list(zip(block.column(0).to_pylist(), block.column(1).to_pylist(), strict=True))
            try:
                results.write_batch(to_batch(checked_lines(lines, limits, by)))
            except ImportLineError:
                results.write_batch(pa.RecordBatch.from_pylist([], schema=RESULTS))
            output.flush()


if __name__ == "__main__":
    main(sys.argv[1])
