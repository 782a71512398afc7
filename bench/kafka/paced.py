"""``python -m bench.kafka.paced SERVERS TOPIC WORKLOAD RULES FIRST RATE SECONDS`` writes messages evenly.

A process of its own: what writes has other cares than what reads. Messages are the first `CYCLE` of the
workload over and over, from number FIRST on; the key of each, and its time stamp, is when it was made, in
milliseconds. It prints how many it has written, and how many milliseconds it was behind at most.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import islice
from typing import Final

from bench.definition import Size, sizes
from bench.kafka.streamed import PARTITIONS, messages

CYCLE: Final = 20_000
_PAUSE_SECONDS: Final = 0.001


def write(servers: str, topic: str, size: Size, first: int, rate: int, seconds: float) -> tuple[int, float]:
    """Write, and return how many messages it were and by how many milliseconds the latest one was late."""
    from confluent_kafka import Producer

    made = list(islice(messages(size, CYCLE), CYCLE))
    refused: list[object] = []

    def noted(error: object, _: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}
    )
    producer.list_topics(topic, 30)
    sent, behind, started = 0, 0.0, time.time()
    while sent < rate * seconds:
        now = time.time()
        due = min(int((now - started) * rate), int(rate * seconds))
        if due > sent:
            behind = max(behind, now - started - sent / rate)
        stamp = int(now * 1_000)
        for number in range(first + sent, first + due):
            value, headers = made[number % CYCLE]
            producer.produce(
                topic,
                value,
                b"%d" % stamp,
                number % PARTITIONS,
                headers=list(headers),
                timestamp=stamp,
                on_delivery=noted,
            )
        sent = due
        producer.poll(_PAUSE_SECONDS)
    if producer.flush(60) or refused:
        raise RuntimeError(f"records were not written: {refused[:1]}")
    return sent, behind * 1_000


if __name__ == "__main__":
    _servers, _topic, _workload, *_numbers = sys.argv[1:]
    _rules, _first, _rate = map(int, _numbers[:3])
    [_size] = [one for one in sizes() if (one.workload, one.rules) == (_workload, _rules)]
    _sent, _behind = write(_servers, _topic, _size, _first, _rate, float(_numbers[3]))
    print(json.dumps({"sent": _sent, "behind_ms": round(_behind, 1)}))
