"""A group whose members come and go, with journals: who is killed comes back, or is evicted, and others join."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from causalcast.cli.control import ask_status, ask_to_evict, ask_to_leave
from causalcast.cli.errors import CommandError
from causalcast.cli.node import EXIT_EVICTED
from chaos.faults import MOVING, open_plan
from chaos.members import ChaosError, Member, Report, watched, workload
from chaos.proxy import Network
from demo.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.faults import Fault, Kind
    from chaos.members import Setting

GOING: Final[tuple[Kind, ...]] = ("leave", "evict", "loss", "absence")
FEWEST, MOST = 4, 7
"""With so many members nobody more goes, or comes."""
POLL_SECONDS: Final = 0.2
JOIN_SECONDS: Final = 40.0
EVICT_SECONDS: Final = 60.0
CONTACTS: Final = 2
REST_POLLS: Final = 2
"""How often in a row everything must be found at rest."""


async def run_moving(setting: Setting, count: int, durability: str) -> Report:
    """Everything but the audit."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as sockets:  # whose names must be short
        async with Network() as network:
            crowd = Crowd(setting, network, Path(sockets), durability)
            try:
                for _ in range(count):
                    await crowd.join()
                speaking = asyncio.create_task(workload(crowd.present, setting.rate, setting.seed))
                striking = [
                    asyncio.create_task(crowd.strike(fault)) for fault in open_plan(setting.seconds, setting.seed)
                ]
                await watched(speaking, setting)
                await asyncio.gather(*striking)
                speaking.cancel()
                await asyncio.gather(speaking, return_exceptions=True)
                setting.say("  everything heals")
                await crowd.at_rest()
                await asyncio.gather(*map(crowd.leave, crowd.present()))
            finally:
                crowd.destroy()
    return Report(crowd.faults, crowd.joined, crowd.lives)


class Crowd:
    """The members of a run, those of now and those of before."""

    def __init__(self, setting: Setting, network: Network, sockets: Path, durability: str) -> None:
        self.faults: Counter[str] = Counter(dict.fromkeys(MOVING, 0))
        self.joined = 0
        self._setting = setting
        self._network = network
        self._sockets = sockets
        self._durability = durability
        self._draw = random.Random(f"{setting.seed}/choice")
        self._all: list[Member] = []
        self._present: dict[str, Member] = {}
        self._down: set[str] = set()
        """Those who will be started again."""
        self._joining = 0
        self._began = time.monotonic()

    def present(self) -> Sequence[Member]:
        """Who is a member, as far as nobody has done anything to it."""
        return list(self._present.values())

    @property
    def lives(self) -> int:
        """How often a member was started that was let in."""
        return sum(member.lives for member in self._all if member.opened)

    def destroy(self) -> None:
        """Leave nothing behind."""
        for member in self._all:
            member.destroy()

    async def strike(self, fault: Fault) -> None:
        """Do what is planned, or what is possible instead."""
        await asyncio.sleep(fault.begins)
        kind = self._possible(fault.kind)
        self.faults[kind] += 1
        if kind == "join":
            await self.join()
            return
        if kind in ("reset", "partition"):
            await self._disturb(kind, fault.lasts)
            return
        member = self._present[self._draw.choice(sorted(self._present.keys() - self._down))]
        self._note(f"{kind} {member.name}")
        if kind == "stop":
            await member.stop(fault.lasts)
        elif kind == "kill":
            self._down.add(member.name)
            await member.restart(fault.lasts)
            self._down.remove(member.name)
        else:
            del self._present[member.name]
            await self._end(member, kind, fault.lasts)
        self._note(f"{kind} {member.name} done")

    async def _end(self, member: Member, kind: Kind, lasts: float) -> None:
        if kind == "leave":
            await self.leave(member)
            return
        if kind in ("loss", "absence"):
            await member.kill()
            await asyncio.sleep(lasts)
        await self._evict(member.name)
        if kind == "loss":
            return
        if kind == "absence":
            await member.start()
        status = await member.ended(EVICT_SECONDS)
        if status != EXIT_EVICTED:
            raise ChaosError(f"{member.name} was evicted and ended with {status}: {member.last_word}")

    async def leave(self, member: Member) -> None:
        """Have it leave, which one that is stopped does later; raises `ChaosError` if it does not end well."""
        deadline = time.monotonic() + EVICT_SECONDS
        while member.status is None:
            if time.monotonic() > deadline:
                raise ChaosError(f"{member.name} did not leave within {EVICT_SECONDS:.0f} s")
            with contextlib.suppress(CommandError):
                await asyncio.to_thread(ask_to_leave, self._socket(member.name))
            await asyncio.sleep(POLL_SECONDS)
        if member.status:
            raise ChaosError(f"{member.name} left and ended with {member.status}: {member.last_word}")

    def _possible(self, kind: Kind) -> Kind:
        may_go = len(self._present) - len(self._down) > FEWEST
        if kind in ("kill", "stop") and len(self._present) - len(self._down) < FEWEST - 1:
            return "reset"
        may_come = len(self._present) + self._joining < MOST
        if (kind == "join" and not may_come) or (kind in GOING and not may_go):
            possible = [*(("join",) if may_come else ()), *(GOING if may_go else ())] or ["reset"]
            return self._draw.choice(possible)
        return kind

    async def _disturb(self, kind: Kind, lasts: float) -> None:
        names = list(self._present)
        if kind == "reset":
            pair = self._draw.sample(names, 2)
            self._note(f"reset {pair}")
            self._network.reset(frozenset(pair))
            return
        side = set(self._draw.sample(names, self._draw.randint(1, len(names) - 1)))
        pairs = [frozenset(pair) for pair in combinations(names, 2) if len(side.intersection(pair)) == 1]
        self._note(f"partition {sorted(side)} for {lasts:.1f}")
        self._network.cut(pairs)
        await asyncio.sleep(lasts)
        self._network.heal(pairs)

    async def join(self) -> None:
        """One more member, through one or another that is there; who is not let in is none."""
        name = f"m{len(self._all)}"
        (port,) = free_ports(1)
        contacts = self._draw.sample(list(self._present), min(CONTACTS, len(self._present)))
        join = ",".join(f"127.0.0.1:{self._network.ports[contact]}" for contact in contacts)
        options = (
            *("--stack", "tcb-dynamic", "--control", str(self._socket(name)), "--join", join),
            *("--advertise", f"127.0.0.1:{await self._network.add(name, port)}"),
            *("--journal", str(self._setting.folder / f"{name}.journal"), "--durability", self._durability),
        )
        member = Member(name, port, self._setting.folder, options)
        self._all.append(member)
        self._note(f"join {name} through {contacts}")
        self._joining += 1
        try:
            await member.start()
            deadline = time.monotonic() + JOIN_SECONDS
            while not member.opened and member.status is None:
                if time.monotonic() > deadline:
                    raise ChaosError(f"{name} has neither joined nor given up within {JOIN_SECONDS:.0f} s")
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._joining -= 1
        if member.opened:
            self._present[name] = member
            self.joined += 1
        self._note(f"{name} is in" if member.opened else f"{name} is not let in: {member.last_word}")

    async def _evict(self, name: str) -> None:
        """Have any member that answers and knows `name` evict it."""
        deadline = time.monotonic() + EVICT_SECONDS
        while time.monotonic() < deadline:
            for member in self._draw.sample(self.present(), len(self._present)):
                if not member.running:
                    continue
                with contextlib.suppress(CommandError):  # it is stopped or gone meanwhile, or another has done it
                    await asyncio.to_thread(ask_to_evict, self._socket(member.name), name)
                    return
            await asyncio.sleep(POLL_SECONDS)
            if not any(name in status["members"] for status in (await self._statuses()).values()):
                return
        raise ChaosError(f"nobody could evict {name} within {EVICT_SECONDS:.0f} s")

    async def at_rest(self) -> None:
        """Wait until all know who is there, all is stable and no table holds anything; evict whoever is left of those
        that are gone. Raises `ChaosError` if it does not come to that.
        """
        deadline = time.monotonic() + self._setting.heal_seconds
        found: dict[str, dict[str, Any]] = {}
        rest = 0
        while rest < REST_POLLS:
            if time.monotonic() > deadline:
                raise ChaosError(f"not at rest after {self._setting.heal_seconds:.0f} s: {found}")
            await asyncio.sleep(POLL_SECONDS)
            for member in self.present():
                member.check()
            found = await self._statuses()
            settled = len(found) == len(self._present) and all(map(self._is_at_rest, found.values()))
            rest = rest + 1 if settled else 0
            for name, status in found.items():
                for gone in set(status["members"]) - self._present.keys():
                    self._note(f"{name} evicts {gone}, which is gone")
                    with contextlib.suppress(CommandError):
                        await asyncio.to_thread(ask_to_evict, self._socket(name), gone)

    def _is_at_rest(self, status: dict[str, Any]) -> bool:
        left = status["unstable"] + status["untaken"] + status["pending"] + sum(status["tables"].values())
        return status["members"] == sorted(self._present) and not left

    async def _statuses(self) -> dict[str, dict[str, Any]]:
        found = {}
        for member in self.present():
            with contextlib.suppress(CommandError):
                found[member.name] = await asyncio.to_thread(ask_status, self._socket(member.name))
        return found

    def _socket(self, name: str) -> Path:
        return self._sockets / f"{name}.sock"

    def _note(self, line: str) -> None:
        with (self._setting.folder / "faults.log").open("a") as log:
            log.write(f"{time.monotonic() - self._began:8.2f} {line}\n")
