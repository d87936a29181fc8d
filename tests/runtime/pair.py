"""Two link state machines and a wire between them that can be cut at any byte."""

from __future__ import annotations

from causalcast.runtime.frames import data_frame, read_hello
from causalcast.runtime.link import Identity, Link

UNCUT = 1 << 40


def identity(called: str, **changes: object) -> Identity:
    return Identity(
        **{
            "group": "g",
            "name": called,
            "roster": "digest",
            "stack": "tcb",
            "frame_limit": 1 << 20,
            "incarnation": ord(called),
            **changes,
        }
    )


class End:
    """One side: its link, what it received, and the stranger's part of accepting."""

    def __init__(self, me: Identity, peer: str) -> None:
        self.link = Link(me, peer)
        self.got: list[bytes] = []
        self.greeting: bytearray | None = None

    def push(self, body: bytes) -> None:
        self.link.push(data_frame(self.link.next_number, body))

    def feed(self, data: bytes) -> None:
        if self.greeting is not None:
            self.greeting += data
            found = read_hello(self.greeting)
            if found is None:
                return
            hello, end = found
            self.link.accept(hello)
            data = bytes(self.greeting[end:])
            self.greeting = None
        self.got += self.link.receive(data)


class Pair:
    """`a` dials `b`."""

    def __init__(self, **changes: object) -> None:
        self.a = End(identity("a", **changes), "b")
        self.b = End(identity("b", **changes), "a")

    def connect(self) -> None:
        self.a.link.lost()
        self.b.link.lost()
        self.b.greeting = bytearray()
        self.a.link.dial()

    def run(
        self, *, a_to_b: int = UNCUT, b_to_a: int = UNCUT, step: int = UNCUT, chunk: int = 1 << 16
    ) -> tuple[int, int]:
        """Move bytes, `step` at a time, until nothing moves or so many bytes have gone each way; returns how many."""
        moved = [0, 0]
        limits = (a_to_b, b_to_a)
        lines = [b"", b""]
        ends = (self.a, self.b)
        while True:
            busy = False
            for way in (0, 1):
                if not lines[way]:
                    if ends[way].link.owes_acknowledgement:
                        ends[way].link.keep_alive()
                    lines[way] = bytes(ends[way].link.output(chunk))
                take = min(step, len(lines[way]), limits[way] - moved[way])
                if take > 0:
                    data, lines[way] = lines[way][:take], lines[way][take:]
                    moved[way] += take
                    ends[1 - way].feed(data)
                    busy = True
            if not busy:
                return moved[0], moved[1]
