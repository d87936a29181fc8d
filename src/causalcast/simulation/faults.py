"""Faults as data: what goes wrong, where and when, in nanoseconds of virtual time.

Links are reliable. What a fault keeps from arriving is held and arrives after it, as it does over the runtime's links;
loss is a property of a `Network`, for those who ask for it. A file of faults is a JSON list:

    [{"fault": "pause", "process": "p1", "at_ns": 20000000, "for_ns": 5000000},
     {"fault": "partition", "groups": [["p0", "p1"]], "at_ns": 30000000, "for_ns": 50000000}]
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from causalcast.model import CausalcastError
from causalcast.simulation.models import InvalidModelError
from causalcast.simulation.portable import choose, ln

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


class Join(_Fault, frozen=True, tag="join"):
    """A process that is not a member of the start joins."""

    process: str
    at_ns: int
    contact: str | None = None
    """Through whom; `None`: one of those that are there then, by the seed."""


class Leave(_Fault, frozen=True, tag="leave"):
    """The process leaves as its protocol has it, and stops once it is out."""

    process: str
    at_ns: int


class Suspicion(_Fault, frozen=True, tag="suspicion"):
    """A failure detector at `by` takes `of` for crashed, rightly or not; with session links, their link ends there.

    With `for_ns` it finds its mistake so much later; only with stacks of static members that suspect.
    """

    by: str
    of: str
    at_ns: int
    for_ns: int | None = None


class Churn(_Fault, frozen=True, tag="churn"):
    """Sessions of a Poisson process at constant size: for each member that goes, another joins at once.

    `departure` is how they go: by `leave` or by `crash`. (Document 002, section 5.6.6, has this of subscriptions.)
    """

    mean_session_ns: int
    at_ns: int
    for_ns: int
    departure: Literal["leave", "crash"] = "leave"


class Turnover(_Fault, frozen=True, tag="turnover"):
    """Members join, and others go, each at a rate of its own: the times between two are those of a Poisson process."""

    at_ns: int
    for_ns: int
    join_every_ns: int | None = None
    """On average; `None`: nobody joins."""
    leave_every_ns: int | None = None
    departure: Literal["leave", "crash"] = "leave"


Fault: TypeAlias = Crash | Pause | Partition | Cut | Flap | Join | Leave | Suspicion | Churn | Turnover

DRAWN: Final = ("pause", "partition", "cut", "flap")
"""What `draw_faults` draws from; all of them end."""


def plan_faults(
    faults: Sequence[Fault], members: Roster, stack: Stack, seed: int
) -> tuple[tuple[Fault, ...], tuple[ProcessId, ...]]:
    """`faults` with every `Churn` and `Turnover` drawn out into single joins and departures, and who joins.

    Whoever joins by these is called `j0`, `j1`, ... Raises `UnsupportedFaultError` for what is beyond the stack.
    """
    for fault in faults:
        lacking = _lacking(fault, stack)
        if lacking is not None:
            raise UnsupportedFaultError(f"{_kind(fault)}{lacking[0]} is beyond the stack {stack.name!r}: {lacking[1]}")
    planned: list[Fault] = []
    joiners = {fault.process: None for fault in faults if isinstance(fault, Join)}
    for place, fault in enumerate(faults):
        if isinstance(fault, Churn | Turnover):
            source = random.Random(f"{seed}=churn/{place}")
            plan = _Comings(fault, [*members], source, prefix="j" if place == 0 else f"j{place}-")
            planned.extend(plan.draw())
            joiners.update(dict.fromkeys(plan.joined))
        else:
            planned.append(fault)
    return tuple(planned), tuple(name for name in joiners if name not in members)


class _Comings:
    """Draws who comes and goes, and when."""

    def __init__(self, fault: Churn | Turnover, present: list[ProcessId], source: random.Random, prefix: str) -> None:
        self._fault = fault
        self._present = present
        self._source = source
        self._prefix = prefix
        self.joined: list[ProcessId] = []

    def draw(self) -> list[Fault]:
        """The single joins and departures, in order of time."""
        fault = self._fault
        if isinstance(fault, Churn):
            if not fault.mean_session_ns or not self._present:
                raise InvalidModelError("a churn needs members, and sessions that last")
            goes: int | None = max(fault.mean_session_ns // len(self._present), 1)
            comes = None
        else:
            goes, comes = fault.leave_every_ns, fault.join_every_ns
            if goes == 0 or comes == 0:
                raise InvalidModelError("a turnover needs some time between two that join or leave")
        found: list[Fault] = []
        time_ns = fault.at_ns
        each = [every for every in (goes, comes) if every is not None]
        if not each:
            raise InvalidModelError("a turnover in which nobody joins or leaves is none")
        # Two Poisson processes are one of the sum of their rates, each event of the one or the other by their shares.
        rate = sum(1 / every for every in each)
        while True:
            time_ns += max(int(-ln(1.0 - self._source.random()) / rate), 1)
            if time_ns >= fault.at_ns + fault.for_ns:
                return found
            departs = goes is not None and self._source.random() * rate < 1 / goes
            if departs and len(self._present) > 1:
                place = int(self._source.random() * len(self._present))
                self._present[place], self._present[-1] = self._present[-1], self._present[place]
                name = self._present.pop()
                found.append(Leave(name, time_ns) if fault.departure == "leave" else Crash(name, time_ns))
            if not departs or isinstance(fault, Churn):
                name = f"{self._prefix}{len(self.joined)}"
                self.joined.append(name)
                self._present.append(name)
                found.append(Join(name, time_ns))


def check_faults(faults: Iterable[Fault], members: Roster, roster: Roster) -> None:
    """Raises `InvalidModelError` unless `faults` can happen to these processes."""
    joins: set[ProcessId] = set()
    for fault in faults:
        match fault:
            case Crash(process=name) | Pause(process=name) | Leave(process=name):
                names: tuple[str, ...] = (name,)
            case Join(process=name, contact=contact):
                names = (name,) if contact is None else (name, contact)
                if name in members or name in joins:
                    raise InvalidModelError(f"a join names {name!r}, which is a member before it")
                joins.add(name)
            case Partition(groups=groups):
                names = tuple(name for group in groups for name in group)
            case Cut(sender=one, receiver=other) | Flap(one=one, other=other) | Suspicion(by=one, of=other):
                names = (one, other)
            case Churn() | Turnover():
                names = ()
        for name, times in Counter(names).items():
            if name not in roster:
                raise InvalidModelError(f"a {_kind(fault)} names {name!r}, which is no process of this run")
            if times > 1:
                raise InvalidModelError(f"a {_kind(fault)} names {name!r} twice")


def _kind(fault: Fault) -> str:
    return str(fault.__struct_config__.tag)


def _lacking(fault: Fault, stack: Stack) -> tuple[str, str] | None:
    """What `stack` has not, if `fault` needs it: how the fault goes on, and why it cannot."""
    match fault:
        case Crash(recover_after_ns=int()) if not stack.recovers:
            return " with recovery", "its processes persist nothing"
        case Join() | Leave() | Churn() | Turnover() if not stack.dynamic:
            return "", "its members neither join nor leave"
        case Suspicion() if not (stack.dynamic or stack.suspects):
            return "", "it has no answer to a failure detector"
        case Suspicion(for_ns=int()) if not stack.suspects:
            return " that ends", "its processes take no suspicion back"
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
