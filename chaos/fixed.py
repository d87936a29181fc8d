"""A group of fixed members with journals: who is killed is started again, and goes on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Final

from chaos.faults import plan
from chaos.members import ChaosError, Member, Report, rows, watched, workload
from chaos.proxy import Network
from demo.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chaos.faults import Fault
    from chaos.members import Setting

POLL_SECONDS: Final = 0.5
OPEN_SECONDS: Final = 60.0


async def run_fixed(setting: Setting, count: int, durability: str) -> Report:
    """Everything but the audit."""
    names = [f"m{number}" for number in range(count)]
    faults = list(plan(names, setting.seconds, setting.seed))
    ports = dict(zip(names, free_ports(count), strict=True))
    async with Network() as network:
        for name, port in ports.items():
            await network.add(name, port)
        members = [
            Member(name, ports[name], setting.folder, _options(name, network, setting.folder, durability))
            for name in names
        ]
        by_name = {member.name: member for member in members}
        try:
            for member in members:
                await member.start()
            await _opened(members)
            speaking = asyncio.create_task(workload(lambda: members, setting.rate, setting.seed))
            striking = [asyncio.create_task(_strike(fault, by_name, network)) for fault in faults]
            await watched(speaking, setting)
            await asyncio.gather(*striking)
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            setting.say("  everything heals")
            await _complete(members, setting.folder / "trace", setting.heal_seconds)
            for member in members:
                await member.end()
        finally:
            for member in members:
                member.destroy()
    return Report(Counter(fault.kind for fault in faults), count, sum(member.lives for member in members))


def _options(name: str, network: Network, folder: Path, durability: str) -> tuple[str, ...]:
    peers = ",".join(f"{peer}=127.0.0.1:{port}" for peer, port in network.ports.items() if peer != name)
    return ("--peers", peers, "--journal", str(folder / f"{name}.journal"), "--durability", durability)


async def _opened(members: Sequence[Member]) -> None:
    """Wait until all are there: faults are for members that work."""
    deadline = time.monotonic() + OPEN_SECONDS
    while not all(member.opened for member in members):
        if time.monotonic() > deadline:
            raise ChaosError(f"not all members have opened within {OPEN_SECONDS:.0f} s")
        for member in members:
            member.check()
        await asyncio.sleep(POLL_SECONDS)


async def _strike(fault: Fault, members: dict[str, Member], network: Network) -> None:
    await asyncio.sleep(fault.begins)
    if fault.kind == "kill":
        await members[fault.members[0]].restart(fault.lasts)
    elif fault.kind == "stop":
        await members[fault.members[0]].stop(fault.lasts)
    elif fault.kind == "reset":
        network.reset(frozenset(fault.members))
    else:
        pairs = [frozenset(pair) for pair in combinations(members, 2) if len(set(pair) & set(fault.members)) == 1]
        network.cut(pairs)
        await asyncio.sleep(fault.lasts)
        network.heal(pairs)


async def _complete(members: Sequence[Member], traces: Path, seconds: float) -> None:
    """Wait until every message is delivered and stable everywhere, for so long: the audit tells if it is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for member in members:
            member.check()
        found = [rows(traces / f"{member.name}.jsonl") for member in members]
        sent = sum(each["broadcast"] for each in found)
        if all(each["broadcast"] + each["deliver"] == sent == each["stable"] for each in found):
            return
        await asyncio.sleep(POLL_SECONDS)
