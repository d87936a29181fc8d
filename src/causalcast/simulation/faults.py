"""Faults as data: what goes wrong, where and when, in nanoseconds of virtual time.

Links are reliable. What a fault keeps from arriving is held and arrives after it, as it does over the runtime's links;
loss is a property of a `Network`, for those who ask for it. A file of faults is a JSON list:

    [{"fault": "pause", "process": "p1", "at_ns": 20000000, "for_ns": 5000000},
     {"fault": "partition", "groups": [["p0", "p1"]], "at_ns": 30000000, "for_ns": 50000000}]
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from causalcast.model import CausalcastError
from causalcast.simulation.models import InvalidModelError
from causalcast.simulation.portable import choose

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causalcast.model import ProcessId, Roster
    from causalcast.protocols import Stack


class UnsupportedFaultError(CausalcastError, ValueError):
    """A fault that the processes of this stack have no answer to."""


class _Fault(msgspec.Struct, frozen=True, tag_field="fault", forbid_unknown_fields=True):
    """Something that goes wrong."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name.endswith("_ns") and value is not None and value < 0:
                raise InvalidModelError(f"a fault with {name} of {value} lies outside of time")


class Crash(_Fault, frozen=True, tag="crash"):
    """The process stops. What it has sent still arrives, unless a fault holds it: that is lost with its sender, and so
    is what follows it on a FIFO link.
    """

    process: str
    at_ns: int
    recover_after_ns: int | None = None
    """When it returns with what it had persisted; `None`: never."""


class Pause(_Fault, frozen=True, tag="pause"):
    """The process stands still: what is due there, messages, timers and its application, waits for its end."""

    process: str
    at_ns: int
    for_ns: int


class Partition(_Fault, frozen=True, tag="partition"):
    """Nothing passes between the groups; processes that are in none of them form one more."""

    groups: tuple[tuple[str, ...], ...]
    at_ns: int
    for_ns: int


class Cut(_Fault, frozen=True, tag="cut"):
    """Nothing passes from one process to another. The other direction works."""

    sender: str
    receiver: str
    at_ns: int
    for_ns: int


class Flap(_Fault, frozen=True, tag="flap"):
    """The link between two processes, both ways, is down and up again `times` times."""

    one: str
    other: str
    at_ns: int
    down_ns: int
    up_ns: int
    times: int


class Churn(_Fault, frozen=True, tag="churn"):
    """For each member that leaves after a session of a Poisson process, another joins (document 002, section 5.6.6)."""

    mean_session_ns: int
    at_ns: int
    for_ns: int


class Suspicion(_Fault, frozen=True, tag="suspicion"):
    """`by` takes `of` for crashed, and it is not."""

    by: str
    of: str
    at_ns: int


Fault: TypeAlias = Crash | Pause | Partition | Cut | Flap | Churn | Suspicion

DRAWN: Final = ("pause", "partition", "cut", "flap")
"""What `draw_faults` draws from; all of them end."""


def check_faults(faults: Iterable[Fault], roster: Roster, stack: Stack) -> None:
    """Raises `InvalidModelError` or `UnsupportedFaultError` unless `faults` can happen to these processes."""
    for fault in faults:
        match fault:
            case Crash(process=name) | Pause(process=name):
                names: tuple[str, ...] = (name,)
            case Partition(groups=groups):
                names = tuple(name for group in groups for name in group)
            case Cut(sender=one, receiver=other) | Flap(one=one, other=other) | Suspicion(by=one, of=other):
                names = (one, other)
            case Churn():
                names = ()
        for name, times in Counter(names).items():
            if name not in roster:
                raise InvalidModelError(f"a {_kind(fault)} names {name!r}, which is no process of this run")
            if times > 1:
                raise InvalidModelError(f"a {_kind(fault)} names {name!r} twice")
        lacking = _lacking(fault)
        if lacking is not None:
            raise UnsupportedFaultError(f"{_kind(fault)}{lacking[0]} is beyond the stack {stack.name!r}: {lacking[1]}")


def _kind(fault: Fault) -> str:
    return str(fault.__struct_config__.tag)


def _lacking(fault: Fault) -> tuple[str, str] | None:
    """What no stack has yet, if `fault` needs it: how the fault goes on, and why it cannot."""
    match fault:
        case Crash(recover_after_ns=int()):
            return " with recovery", "its processes persist nothing"
        case Churn():
            return "", "its members neither join nor leave"
        case Suspicion():
            return "", "it has no failure detector to mislead"
    return None


def draw_faults(names: Sequence[ProcessId], *, seed: int, count: int, within_ns: int) -> tuple[Fault, ...]:
    """`count` faults of the kinds `DRAWN`, each beginning before `within_ns` and lasting 1 to 10 % of it."""
    if len(names) < 2:
        raise InvalidModelError("faults are drawn for at least two processes")
    source = random.Random(f"{seed}=faults")
    faults: list[Fault] = []
    for _ in range(count):
        kind = DRAWN[int(source.random() * len(DRAWN))]
        at_ns = int(source.random() * within_ns)
        for_ns = int(within_ns * (0.01 + 0.09 * source.random()))
        one, other = choose(source, names, 2)
        match kind:
            case "pause":
                faults.append(Pause(one, at_ns, for_ns))
            case "partition":
                side = choose(source, names, 1 + int(source.random() * (len(names) - 1)))
                faults.append(Partition((tuple(side),), at_ns, for_ns))
            case "cut":
                faults.append(Cut(one, other, at_ns, for_ns))
            case _:
                faults.append(Flap(one, other, at_ns, for_ns // 6, for_ns // 6, 3))
    return tuple(faults)
