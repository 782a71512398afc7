"""Conversations of a hostile client of AMQP, each held to what must be true of every one.

``python -m tests.properties.fuzz.frames``

A conversation is a good one after some damage: frames are dropped, repeated, swapped, their fields replaced,
their bytes changed or cut, and all arrives in pieces of any size. The server never raises; what it writes is
made of whole frames and headers; it reports the end of the connection once, nothing of a link after its end,
and keeps no more than its limits allow.

A conversation is made from the seed and its number alone, so that any one can be made again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from selectroute.amqp.connection import (
    Connection,
    ConnectionClosed,
    CredentialsReceived,
    Event,
    OpenReceived,
)
from selectroute.amqp.errors import AmqpError
from selectroute.amqp.output import ConnectionLimits
from selectroute.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Released,
    SaslInit,
    SourceTerminus,
    TargetTerminus,
    TransactionalState,
    Transfer,
    write,
)
from selectroute.amqp.sections import read_message
from selectroute.amqp.session import (
    AttachReceived,
    LinkDetached,
    TransactionDeclared,
    TransactionDischarged,
    TransferReceived,
)
from selectroute.amqp.types import Symbol, described, encode
from tests.support.amqp import AMQP, SASL, frame, frames, text_message

LIMITS: Final = ConnectionLimits(frame=4_096, message=16_384, sessions=4, links=8, window=16)
INIT: Final = frame(SaslInit(Symbol("PLAIN"), b"\0ada\0secret"), kind=1)
NUMBERS: Final = (0, 1, 2, 7, 8, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32 - 1)
VALUES: Final = (None, True, False, "", "a", Symbol("b"), b"", b"1", 0, -1, [], [[]], {}, {"a": 1}, 0.5)
TXN: Final = described(0x77, write(Declare())), described(0x77, write(Discharge(b"txn", False)))


def conversation(chance: Random) -> bytes:
    """Return what a client says."""
    said = [SASL, INIT, AMQP, frame(Open("client", max_frame_size=chance.choice((None, 512, 4_096))))]
    windows = (0, 1, 5, 1_000, 1_000, 1_000)
    said += [frame(Begin(None, 0, chance.choice(windows), 1_000), channel=channel) for channel in range(2)]
    links: dict[tuple[int, int], bool] = {}
    said += [_frame(chance, links, number) for number in range(chance.randint(1, 60))]
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        at = chance.randrange(len(said))
        said[at : at + 1] = _damaged(chance, said[at], chance.choice(said))
    return b"".join(said)


def _frame(chance: Random, links: dict[tuple[int, int], bool], number: int) -> bytes:
    """Return a frame that is right but for one in fifty.

    Args:
        links: the links by channel and handle, True for those that the client receives by.
        number: a new delivery id.
    """
    place = chance.randrange(2), chance.randrange(5)
    channel, handle = place
    count = chance.choice(NUMBERS)
    flag = chance.choice((True, False, None))
    is_wrong = chance.random() < 0.02
    if place not in links or is_wrong:
        links[place] = role = chance.random() < 0.5
        target = chance.choice(
            (TargetTerminus("q"), TargetTerminus("t", capabilities=[Symbol("topic")]), Coordinator())
        )
        modes = chance.choice((None, 0, 1, 2)), chance.choice((None, 0, 1))
        attach = Attach(f"link-{handle}", handle, role, *modes, SourceTerminus("q"), target)
        return frame(attach, channel=channel)
    drawn = chance.random()
    if drawn < 0.05:
        del links[place]
        return frame(Detach(handle, flag), channel=channel)
    if drawn < 0.06:
        return frame(chance.choice((End(), Close(), None)), channel=channel)
    if links[place] is not is_wrong and drawn < 0.5:
        seen = chance.choice((0, number // 2, number))
        flow = Flow(seen, count, 0, 9, handle, seen, chance.choice((0, 1, 10, count)), None, flag, flag)
        return frame(flow, channel=channel)
    state = chance.choice(
        (None, Accepted(), Released(), Modified(True), TransactionalState(b"txn", Accepted()))
    )
    if links[place]:
        return frame(
            Disposition(not is_wrong, number // 4, chance.choice((None, count)), flag, state), channel=channel
        )
    transfer, payload = chance.choice(
        (
            (
                Transfer(handle, number, b"t", 0, flag, state=state),
                text_message("x" * chance.choice((1, 900))),
            ),
            (Transfer(handle, number, b"t", 0, None, True), chance.randbytes(chance.choice((0, 9, 3_000)))),
            (Transfer(handle, number, b"t", 0), chance.choice(TXN)),
            (Transfer(handle, number, aborted=flag, more=flag), b"x"),
        )
    )
    return frame(transfer, payload, channel=channel)


def _damaged(chance: Random, one: bytes, other: bytes) -> list[bytes]:
    """Return what a frame becomes."""
    at = chance.randrange(len(one) + 1)
    kind = chance.randrange(8)
    if kind == 0:
        return []
    if kind == 1:
        return [one] * chance.choice((2, 3, 50))
    if kind == 2:
        return [other, one]
    if kind == 3:
        return [one[:at]]
    if kind == 4:
        return [one[:at] + chance.randbytes(chance.randint(1, 8)) + one[at + 1 :]]
    if kind == 5:
        fields = described(
            chance.randrange(0x10, 0x80), encode([*chance.choices(VALUES, k=chance.randint(0, 15))])
        )
        return [(8 + len(fields)).to_bytes(4) + b"\x02\x00\x00\x00" + fields]
    if kind == 6:
        return [chance.choice((SASL, AMQP, INIT, b"GET / HTTP/1.1\r\n\r\n"))]
    return [chance.randbytes(chance.randint(1, 40))]


def pieces(chance: Random, data: bytes) -> Iterator[bytes]:
    """Yield bytes as they arrive."""
    most = chance.choice((1, 10, 100, 100_000))
    while data:
        size = chance.randint(1, most)
        yield data[:size]
        data = data[size:]


class Server:
    """Server that answers as it likes: now, later, or never."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.connection = Connection("server", ["PLAIN", "ANONYMOUS"], limits=LIMITS)
        self.seen: Counter[str] = Counter()
        self._later: list[Event] = []
        self._ended: set[Any] = set()
        self._links: list[Any] = []

    def hold(self, data: bytes) -> None:
        """Hold a conversation. Raises AssertionError, or whatever the connection raises."""
        for piece in pieces(self.chance, data):
            self._take(self.connection.receive(piece))
            if self.chance.random() < 0.5:
                later, self._later = self._later, []
                self._take(later)
            self._send()
            assert self._kept() <= 2 * LIMITS.frame + LIMITS.message * LIMITS.links * LIMITS.sessions
            frames(self.connection.take_output())
        self._take(self.connection.lost())
        assert self.seen["ConnectionClosed"] == 1, "the end is reported once"
        assert self.connection.lost() == []

    def _kept(self) -> int:
        partial = sum(len(link._partial) for link in self._links if not link.request.role)
        return len(self.connection._input) + partial

    def _take(self, events: list[Event]) -> None:
        while events:
            events = [more for event in events for more in self._answer(event)]

    def _answer(self, event: Event) -> list[Event]:
        self.seen[type(event).__name__] += 1
        assert self.seen["ConnectionClosed"] <= 1
        link = getattr(event, "link", None)
        assert link is None or link not in self._ended or not isinstance(event, LinkDetached), (
            "one end of a link"
        )
        if isinstance(event, CredentialsReceived):
            return self.connection.authenticate(is_accepted=self.chance.random() < 0.95)
        if isinstance(event, OpenReceived):
            if self.chance.random() < 0.95:
                return self.connection.open()
            return self.connection.refuse(AmqpError("amqp:not-allowed", "no"))
        if isinstance(event, LinkDetached | ConnectionClosed):
            self._ended.add(link)
        elif self.chance.random() < 0.2:
            self._later.append(event)
        else:
            self._answer_link(event)
        return []

    def _answer_link(self, event: Any) -> None:
        link = event.link
        if isinstance(event, AttachReceived):
            request = link.request
            self._links.append(link)
            if (request.source if request.role else request.target) is None or self.chance.random() < 0.1:
                link.refuse(AmqpError("amqp:not-found", "no"))
            elif request.role:
                link.attach(request.source)
            else:
                link.attach(request.target, self.chance.choice((0, 1, 5)))
        elif isinstance(event, TransactionDeclared):
            link.declared(event.delivery, b"txn")
        elif isinstance(event, TransferReceived | TransactionDischarged) and not event.delivery.is_settled:
            try:
                read_message(event.delivery.payload)
                link.settle(event.delivery, Accepted())
            except AmqpError as error:
                link.reject(event.delivery, error)
                if self.chance.random() < 0.3:
                    link.detach(error)

    def _send(self) -> None:
        for link in self._links:
            if link.request.role and link.can_send:
                if link.is_draining:
                    link.drained()
                else:
                    link.send(text_message("x" * self.chance.choice((1, 600))), object())
            elif not link.request.role and link.credit == 0 and link not in self._ended:
                link.grant(5)


def run(seed: int, numbers: range, *, progress: bool = False) -> tuple[Counter[str], str | None]:
    """Hold the conversations with these numbers; return the events, and a report of the first failure."""
    seen: Counter[str] = Counter()
    said = time.monotonic()
    for number in numbers:
        chance = Random(f"{seed} {number}")
        server = Server(chance)
        try:
            server.hold(conversation(chance))
        except Exception as problem:
            replay = (
                f"python -m tests.properties.fuzz.frames --seed {seed} --start {number} --count 1 --raise"
            )
            return seen, f"{type(problem).__name__}: {problem}\nreplay: {replay}"
        seen += server.seen
        if progress and time.monotonic() - said > 10:
            said = time.monotonic()
            print(f"{number - numbers.start:,} of {len(numbers):,}", file=sys.stderr, flush=True)
    return seen, None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit code: 1 if a conversation failed."""
    parser = argparse.ArgumentParser("python -m tests.properties.fuzz.frames", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="conversations (default 20000)")
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other ones (default 1)")
    parser.add_argument("--start", type=int, default=0, help="the number of the first (default 0)")
    parser.add_argument("--raise", action="store_true", dest="raises", help="end in a traceback")
    options = parser.parse_args(arguments)
    numbers = range(options.start, options.start + options.count)
    if options.raises:
        for number in numbers:
            chance = Random(f"{options.seed} {number}")
            Server(chance).hold(conversation(chance))
        return 0
    seen, failure = run(options.seed, numbers, progress=True)
    print(failure or f"{len(numbers):,} conversations: all held; {dict(seen)}")
    return int(failure is not None)


if __name__ == "__main__":
    sys.exit(main())
