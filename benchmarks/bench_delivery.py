"""The delivery bench: process CPU time per remote delivery, against a bare asyncio TCP mesh in the same run.

Every member is an operating-system process on loopback. Each broadcasts messages of 64 bytes as fast as its host lets
it, and takes everything that comes. The bare mesh moves the same payloads with nothing on top: length-prefixed frames,
one write a message and peer, no order, no acknowledgement, no reconnection. CPU time counts from when all are connected
until every member has delivered everything and, with causalcast, has seen every message become stable; waiting for the
disk is no CPU time and not in it. Members of `tcb` are fixed, those of `tcb-dynamic` have all joined before; both
without and with a journal.

A second table, `delivery_one_a_turn`, has the case that is hardest for tags: each member gives way to the event loop
after each message, so that writes are small and nearly every message has one of every member just before it. A third,
`delivery_beside_a_stopped_member`, compares four members with four of five, the fifth of which is stopped before they
begin: CPU time and rate until each has delivered all of the others. Nothing becomes stable meanwhile, and what four
alone spend on that they do not; when the fifth goes on, it must get everything.
Run with `python benchmarks/bench_delivery.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import struct
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from operator import truediv
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, cast

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import causalcast
from benchmarks.report import Case, write
from causalcast import Delivered, Stable

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from causalcast import Group
    from causalcast.runtime.journal import Durability

PAYLOAD = bytes(64)
BURST = 64
"""Messages the bare mesh writes before the event loop gets a turn; a `Group` gives way by itself, see `TURN_S`."""
LENGTH = struct.Struct("!I")
DYNAMIC = "tcb-dynamic"
DYNAMIC_JOURNAL = "tcb-dynamic, journal"
KINDS = {
    "bare": "bare mesh",
    "none": "tcb",
    DYNAMIC: DYNAMIC,
    "interval": "tcb, journal, interval",
    DYNAMIC_JOURNAL: "tcb-dynamic, journal, interval",
    "every-message": "tcb, journal, every-message",
}
"""What is measured, and what it is called: the bare mesh, `tcb` by durability, `tcb-dynamic` without and with one."""
SPAWN = multiprocessing.get_context("spawn")


class Load(NamedTuple):
    """What the members do."""

    members: int
    messages: int
    """Of each of them."""
    burst: int = BURST
    stopped: bool = False
    """The first member is silent, and stopped until the others have done."""
    until_stable: bool = True
    """The others have done when everything is stable, not when everything is delivered."""

    @property
    def speakers(self) -> int:
        return self.members - self.stopped


class Spent(NamedTuple):
    """What one run took."""

    cpu_us_per_delivery: float
    deliveries_per_second: float


class BareMember:
    """Counts what comes, writes to everyone."""

    def __init__(self, expected: int) -> None:
        self.peers: list[BareProtocol] = []
        self.received = 0
        self.expected = expected
        self.complete = asyncio.Event()


class BareProtocol(asyncio.Protocol):
    def __init__(self, member: BareMember) -> None:
        self.member = member
        self.buffer = b""
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.member.peers.append(self)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data
        position = 0
        payloads = []
        while position + 4 <= len(data):
            (length,) = LENGTH.unpack_from(data, position)
            end = position + 4 + length
            if end > len(data):
                break
            payloads.append(data[position + 4 : end])
            position = end
        self.buffer = data[position:]
        self.member.received += len(payloads)
        if self.member.received == self.member.expected:
            self.member.complete.set()


async def run_bare(index: int, load: Load, control: Connection) -> None:
    loop = asyncio.get_running_loop()
    member = BareMember((load.members - 1) * load.messages)
    server = await loop.create_server(lambda: BareProtocol(member), "127.0.0.1", 0)
    control.send(server.sockets[0].getsockname()[1])
    ports = await asyncio.to_thread(control.recv)
    for port in ports[index + 1 :]:
        await loop.create_connection(lambda: BareProtocol(member), "127.0.0.1", port)
    while len(member.peers) < load.members - 1:
        await asyncio.sleep(0.01)
    control.send("connected")
    await asyncio.to_thread(control.recv)
    began, start = time.monotonic(), time.process_time()
    frame = LENGTH.pack(len(PAYLOAD)) + PAYLOAD
    for number in range(load.messages):
        for peer in member.peers:
            peer.transport.write(frame)
        if number % load.burst == 0:
            await asyncio.sleep(0)
            for peer in member.peers:
                await peer.writable.wait()
    await member.complete.wait()
    control.send((time.process_time() - start, time.monotonic() - began))
    await asyncio.to_thread(control.recv)
    server.close()


def member_of(index: int, size: int, known: list[int], kind: str, folder: str) -> Group:
    """The member `index`, before it is entered; those that are larger listen at the ports `known`."""
    names = [f"m{number}" for number in range(size)]
    if kind in (DYNAMIC, DYNAMIC_JOURNAL):
        return causalcast.open(
            names[index],
            listen="127.0.0.1:0",
            stack=DYNAMIC,
            join=[f"127.0.0.1:{port}" for port in known[-1:]],
            journal=f"{folder}/journal" if kind == DYNAMIC_JOURNAL else None,
            durability="interval",
        )
    ports = [1] * (size - len(known)) + known
    peers = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True) if name != names[index]}
    return causalcast.open(
        names[index],
        listen="127.0.0.1:0",
        peers=peers,
        journal=f"{folder}/journal",
        durability=cast("Durability", kind),
    )


async def take_all(group: Group, load: Load, expected: int) -> None:
    """Take events until everything that counts has come.

    It asks for exact types, since what this loop costs is no cost of the group.
    """
    delivered = stable = 0
    async for event in group:
        kind = type(event)
        if kind is Delivered:
            delivered += 1
        elif kind is Stable:
            stable += 1
        if delivered == expected and (not load.until_stable or stable == load.speakers * load.messages):
            return


async def run_causalcast(index: int, load: Load, control: Connection, kind: str) -> None:
    # The largest name is dialled by all and dials nobody: members open from the last to the first.
    known = await asyncio.to_thread(control.recv)
    speaks = index > 0 or not load.stopped
    async with AsyncExitStack() as exits:
        folder = exits.enter_context(tempfile.TemporaryDirectory())
        group = await exits.enter_async_context(member_of(index, load.members, known, kind, folder))
        control.send(int(group.address.rpartition(":")[2]))
        while len(group.members) < load.members or not all(link.connected for link in group.links()):
            await asyncio.sleep(0.01)
        control.send("connected")
        await asyncio.to_thread(control.recv)
        began, start = time.monotonic(), time.process_time()

        async def broadcast() -> None:
            for _ in range(load.messages if speaks else 0):
                await group.broadcast(PAYLOAD)
                if load.burst == 1:
                    await asyncio.sleep(0)

        sending = asyncio.create_task(broadcast())
        await take_all(group, load, (load.speakers - speaks) * load.messages)
        control.send((time.process_time() - start, time.monotonic() - began))
        await sending
        await asyncio.to_thread(control.recv)


def member(kind: str, index: int, load: Load, control: Connection) -> None:
    if kind == "bare":
        asyncio.run(run_bare(index, load, control))
    else:
        asyncio.run(run_causalcast(index, load, control, kind))


def measure(kind: str, load: Load) -> Spent:
    """One run, over all processes that broadcast."""
    controls: list[Connection] = []
    processes: list[SpawnProcess] = []
    for index in range(load.members):
        mine, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=member, args=(kind, index, load, theirs))
        process.start()
        controls.append(mine)
        processes.append(process)
    if kind == "bare":
        ports = [control.recv() for control in controls]
        for control in controls:
            control.send(ports)
    else:
        known: list[int] = []
        for control in reversed(controls):
            control.send(known)
            known = [control.recv(), *known]
    for control in controls:
        control.recv()
    if load.stopped:
        os.kill(processes[0].pid or 0, signal.SIGSTOP)
    for control in controls:
        control.send("go")
    answers = [control.recv() for control in controls[load.stopped :]]
    if load.stopped:
        os.kill(processes[0].pid or 0, signal.SIGCONT)
        controls[0].recv()
    for control in controls:
        control.send("end")
    for process in processes:
        process.join()
    deliveries = load.speakers * (load.speakers - 1) * load.messages
    return Spent(sum(cpu for cpu, _ in answers) / deliveries * 1e6, deliveries / max(wall for _, wall in answers))


def costs(load: Load, rounds: int) -> list[Case]:
    """CPU time of each kind, in turn: medians, also of the ratios to the bare mesh of the same round."""
    spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, values in spent.items():
            values.append(measure(kind, load).cpu_us_per_delivery)
    total = load.members * load.messages
    return [
        Case(
            f"{load.members} members, {total:,} messages: {name}",
            {
                "members": load.members,
                "messages": total,
                "us_per_delivery": median(spent[kind]),
                "ratio_to_bare_mesh": median(map(truediv, spent[kind], spent["bare"])),
            },
        )
        for kind, name in KINDS.items()
    ]


def beside_a_stopped_member(kind: str, messages: int, rounds: int) -> Case:
    """Four members, and four of five with the fifth stopped, in turn: medians, also of the ratios of each round."""
    loads = {
        "four": Load(4, messages, until_stable=False),
        "four_of_five": Load(5, messages, stopped=True, until_stable=False),
    }
    spent: dict[str, list[Spent]] = {name: [] for name in loads}
    for _ in range(rounds):
        for name, load in loads.items():
            spent[name].append(measure(kind, load))
    figures: dict[str, float] = {}
    for what in Spent._fields:
        four, four_of_five = ([getattr(run, what) for run in runs] for runs in spent.values())
        figures |= {
            what: median(four_of_five),
            f"{what}_of_four_alone": median(four),
            f"{what}_ratio": median(map(truediv, four_of_five, four)),
        }
    return Case(f"{KINDS[kind]}, {4 * messages:,} messages", figures)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds",
        type=int,
        default=9,
        help="runs of each kind, in turn; the median counts",
    )
    parser.add_argument("--quick", action="store_true", help="one round, without the case of 100,000 messages")
    options = parser.parse_args()
    rounds: int = 1 if options.quick else options.rounds
    in_bursts = [*costs(Load(4, 2_000), rounds), *costs(Load(8, 2_000), rounds)]
    if not options.quick:
        in_bursts += costs(Load(4, 25_000), rounds)
    write("delivery", in_bursts)
    write("delivery_one_a_turn", costs(Load(4, 2_000, burst=1), rounds))
    write(
        "delivery_beside_a_stopped_member",
        [beside_a_stopped_member(kind, 5_000, rounds) for kind in ("none", DYNAMIC)],
    )


if __name__ == "__main__":
    main()
