"""Networks in virtual time: what happens to a message between being sent and arriving, as data.

A copy for each destination passes through

1. *processing* in its sender, `processing_ns`, which holds up nothing else;
2. the sender's one *send queue*, shared by all its links: a copy occupies it for `transmission_ns`, and for as long as
   its bytes take at `bits_per_second`;
3. *propagation*: a draw of its link's model, the first that is given of `links`, `matrix`, `sites` and `delay`, and
   what `rise` has added by then.

1 and 2 with a processing and transmission of one unit of time are the packet model of document 002, section 4.5.1;
2 with a bandwidth is that of document 003, section V-A. By default neither takes time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.protocols import STACKS
from causalcast.simulation.models import NS_PER_MS, NS_PER_US, Constant, Delay, InvalidModelError, Uniform, Weibull

if TYPE_CHECKING:
    import os

    from causalcast.model import ProcessId, Roster

DEFAULT_DELAY: Final = Uniform(5 * NS_PER_MS, 15 * NS_PER_MS)


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The propagation from one process to another, in that direction only."""

    sender: str
    receiver: str
    delay: Delay


class Matrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A baseline for each link, its sender's row and receiver's column in roster order (document 004, section 8.1.2).

    With a `scale` above 0 a delay is `Weibull(baseline, scale, shape)`, otherwise the baseline itself.
    """

    baselines_ns: tuple[tuple[int, ...], ...]
    scale: float = 0.0
    shape: float = 2.0

    def __post_init__(self) -> None:
        size = len(self.baselines_ns)
        for number, row in enumerate(self.baselines_ns, start=1):
            if len(row) != size:
                raise InvalidModelError(f"row {number} of a matrix of {size} rows holds {len(row)} values")
            if min(row) < 0:
                raise InvalidModelError(f"row {number} of the matrix holds {min(row)}, a negative latency")


class Sites(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Processes are at `count` sites, dealt out in roster order (000, section 4.2.2: 5,000 at each of 2)."""

    count: int
    across: Delay
    """From one site to another; within one it is the network's `delay`."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidModelError(f"processes cannot be at {self.count} sites")


class Rise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Propagation becomes longer: in even steps from nothing at `at_ns` to `by_ns` more after `for_ns`, and stays so.

    Document 001, section 4, lets it grow to 5 s while an overlay is there.
    """

    by_ns: int
    at_ns: int
    for_ns: int

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                raise InvalidModelError(f"a rise with {name} of {getattr(self, name)} lies outside of time")

    def added_ns(self, now: int) -> int:
        """What a message sent `now` takes longer."""
        if now < self.at_ns:
            return 0
        return self.by_ns * min(now - self.at_ns, self.for_ns) // self.for_ns if self.for_ns else self.by_ns


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How messages travel; see the module."""

    delay: Delay = DEFAULT_DELAY
    fifo: bool = True
    """Whether a message that would overtake an earlier one of its link arrives with it, right behind it."""
    links: tuple[Link, ...] = ()
    matrix: Matrix | None = None
    sites: Sites | None = None
    rise: Rise | None = None
    processing_ns: int = 0
    transmission_ns: int = 0
    bits_per_second: int | None = None
    unqueued: tuple[str, ...] = ()
    """Types of messages that pass by 1 and 2 and only propagate, as in models that leave acknowledgements out."""
    loss: float = 0.0
    """The probability that a copy never arrives. Protocols here expect reliable links: this is for those who do not."""
    duplication: float = 0.0
    """The probability that a copy arrives twice."""
    tick_ns: int = NS_PER_US
    """All events happen at multiples of this. The coarser, the more of them share a place in the time queue."""
    session_timeout_ns: int = 1_000 * NS_PER_MS
    """A session link that a fault keeps down for so long ends, with what was on it."""

    def __post_init__(self) -> None:
        for name, probability in (("loss", self.loss), ("duplication", self.duplication)):
            if not 0 <= probability <= 1:
                raise InvalidModelError(f"a {name} of {probability:g} is no probability")
        for name in ("processing_ns", "transmission_ns", "session_timeout_ns"):
            if getattr(self, name) < 0:
                raise InvalidModelError(f"a {name} of {getattr(self, name)} is negative")
        if self.tick_ns < 1:
            raise InvalidModelError(f"a tick of {self.tick_ns} ns is not positive")
        if self.bits_per_second is not None and self.bits_per_second < 1:
            raise InvalidModelError(f"nothing can be sent at {self.bits_per_second} bits per second")

    def service_ns(self, wire_bytes: int) -> int:
        """How long a copy of `wire_bytes` occupies its sender's queue."""
        if self.bits_per_second is None:
            return self.transmission_ns
        return self.transmission_ns + -(-wire_bytes * 8_000_000_000 // self.bits_per_second)

    def exceptions(self, sender: ProcessId, roster: Roster) -> dict[ProcessId, Delay]:
        """The models of the links from `sender` that differ from `delay` and `sites`."""
        found: dict[ProcessId, Delay] = {}
        if self.matrix is not None:
            matrix = self.matrix
            for receiver, baseline in zip(roster, matrix.baselines_ns[roster.slot(sender)], strict=True):
                found[receiver] = Weibull(baseline, matrix.scale, matrix.shape) if matrix.scale else Constant(baseline)
        found.update((link.receiver, link.delay) for link in self.links if link.sender == sender)
        return found

    def check(self, roster: Roster) -> None:
        """Raises `InvalidModelError` unless this network fits the processes of `roster`."""
        for link in self.links:
            for name in (link.sender, link.receiver):
                if name not in roster:
                    raise InvalidModelError(f"the network has a link of {name!r}, which is no process of this run")
        known = {kind.__name__ for each in STACKS.values() for kind in each.wire_types}
        for name in self.unqueued:
            if name not in known:
                raise InvalidModelError(f"no stack sends messages of the type {name!r}: none can be left unqueued")
        if self.matrix is not None and len(self.matrix.baselines_ns) != len(roster):
            raise InvalidModelError(
                f"a matrix of {len(self.matrix.baselines_ns)} rows does not fit {len(roster)} processes"
            )


def read_matrix(path: str | os.PathLike[str]) -> Matrix:
    """A matrix from a file as document 004 has it: N rows of N whole microseconds, separated by commas."""
    rows = []
    try:
        lines = Path(path).read_text().splitlines()
    except UnicodeDecodeError:
        raise InvalidModelError(f"{path} is no text") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                rows.append(tuple(int(word) * NS_PER_US for word in line.split(",")))
            except ValueError:
                raise InvalidModelError(f"{path}:{number}: not whole microseconds separated by commas") from None
    return Matrix(tuple(rows))
