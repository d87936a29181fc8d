"""The delivery bench: process CPU time per remote delivery, against a bare asyncio TCP mesh in the same run.

Every member is an operating-system process on loopback. Each broadcasts M messages of 64 bytes as fast as its host
lets it, and takes everything that comes. A second table, `delivery_one_a_turn`, has the case that is hardest for tags:
each member gives way to the event loop after each message, so that writes are small and nearly every message has one of
every member just before it. The bare mesh moves the same
payloads with nothing on top: length-prefixed frames, one write a message and peer, no order, no acknowledgement, no
reconnection. CPU time counts from when all are connected until every member has delivered everything and, with
causalcast, has seen every message become stable. Members of `tcb` are fixed; those of `tcb-dynamic` have all joined
before. A third table, `delivery_with_journal`, compares members with and
without a journal; waiting for the disk is no CPU time and not in it. Run with `python benchmarks/bench_delivery.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import struct
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, cast

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import causalcast
from benchmarks.report import Case, write
from causalcast.runtime.journal import DURABILITIES

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from causalcast import Group
    from causalcast.runtime.journal import Durability

PAYLOAD = bytes(64)
BURST = 64
"""Messages the bare mesh writes before the event loop gets a turn; a `Group` gives way by itself after as many."""
LENGTH = struct.Struct("!I")
DYNAMIC = "tcb-dynamic"
SPAWN = multiprocessing.get_context("spawn")


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


async def run_bare(index: int, size: int, messages: int, burst: int, control: Connection) -> float:
    loop = asyncio.get_running_loop()
    member = BareMember((size - 1) * messages)
    server = await loop.create_server(lambda: BareProtocol(member), "127.0.0.1", 0)
    control.send(server.sockets[0].getsockname()[1])
    ports = await asyncio.to_thread(control.recv)
    for port in ports[index + 1 :]:
        await loop.create_connection(lambda: BareProtocol(member), "127.0.0.1", port)
    while len(member.peers) < size - 1:
        await asyncio.sleep(0.01)
    control.send("connected")
    await asyncio.to_thread(control.recv)
    start = time.process_time()
    frame = LENGTH.pack(len(PAYLOAD)) + PAYLOAD
    for number in range(messages):
        for peer in member.peers:
            peer.transport.write(frame)
        if number % burst == 0:
            await asyncio.sleep(0)
            for peer in member.peers:
                await peer.writable.wait()
    await member.complete.wait()
    spent = time.process_time() - start
    control.send(spent)
    await asyncio.to_thread(control.recv)
    server.close()
    return spent


def member_of(index: int, size: int, known: list[int], kind: str, folder: str) -> Group:
    """The member `index`, before it is entered; those that are larger listen at the ports `known`."""
    names = [f"m{number}" for number in range(size)]
    if kind == DYNAMIC:
        return causalcast.open(
            names[index], listen="127.0.0.1:0", stack=DYNAMIC, join=[f"127.0.0.1:{port}" for port in known[-1:]]
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


async def run_causalcast(index: int, size: int, messages: int, burst: int, control: Connection, kind: str) -> float:
    # The largest name is dialled by all and dials nobody: members open from the last to the first.
    known = await asyncio.to_thread(control.recv)
    async with AsyncExitStack() as exits:
        folder = exits.enter_context(tempfile.TemporaryDirectory())
        group = await exits.enter_async_context(member_of(index, size, known, kind, folder))
        control.send(int(group.address.rpartition(":")[2]))
        while len(group.members) < size or not all(link.connected for link in group.links()):
            await asyncio.sleep(0.01)
        control.send("connected")
        await asyncio.to_thread(control.recv)
        start = time.process_time()

        async def broadcast() -> None:
            for _ in range(messages):
                await group.broadcast(PAYLOAD)
                if burst == 1:
                    await asyncio.sleep(0)

        sending = asyncio.create_task(broadcast())
        delivered = stable = 0
        async for event in group:
            if isinstance(event, causalcast.Delivered):
                delivered += 1
            elif isinstance(event, causalcast.Stable):
                stable += 1
                if stable == size * messages:
                    break
        spent = time.process_time() - start
        assert delivered == (size - 1) * messages
        await sending
        control.send(spent)
        await asyncio.to_thread(control.recv)
    return spent


def member(kind: str, index: int, size: int, messages: int, burst: int, control: Connection) -> None:
    if kind == "bare":
        asyncio.run(run_bare(index, size, messages, burst, control))
    else:
        asyncio.run(run_causalcast(index, size, messages, burst, control, kind))


def measure(kind: str, size: int, messages: int, burst: int) -> float:
    """CPU microseconds per remote delivery, over all processes; `kind` is "bare", "tcb-dynamic" or a durability."""
    controls: list[Connection] = []
    processes: list[SpawnProcess] = []
    for index in range(size):
        mine, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=member, args=(kind, index, size, messages, burst, theirs))
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
    for step in ("go", "end"):
        answers = [control.recv() for control in controls]
        for control in controls:
            control.send(step)
    for process in processes:
        process.join()
    return float(sum(answers)) / (size * (size - 1) * messages) * 1e6


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind, in turn; the median counts")
    parser.add_argument("--quick", action="store_true", help="one round of 2,000 messages only")
    options = parser.parse_args()
    rounds: int = 1 if options.quick else options.rounds
    in_bursts: list[Case] = []
    one_a_turn: list[Case] = []
    workloads = [(size, messages, BURST) for size in (4, 8) for messages in (2_000, 10_000)]
    workloads += [(size, 2_000, 1) for size in (4, 8)]
    for size, messages, burst in workloads:
        if options.quick and messages > 2_000:
            continue
        figures: dict[str, list[float]] = {"bare": [], "none": [], DYNAMIC: []}
        for _ in range(rounds):
            for kind, values in figures.items():
                values.append(measure(kind, size, messages, burst))
        bare, ours, dynamic = (median(values) for values in figures.values())
        (one_a_turn if burst == 1 else in_bursts).append(
            Case(
                f"{size} members, {messages:,} messages each",
                {
                    "members": size,
                    "messages": messages,
                    "bare_mesh_us_per_delivery": bare,
                    "causalcast_us_per_delivery": ours,
                    "ratio_to_bare_mesh": ours / bare,
                    "tcb_dynamic_us_per_delivery": dynamic,
                    "tcb_dynamic_ratio_to_bare_mesh": dynamic / bare,
                },
            )
        )
    journals = []
    for messages, burst in ((2_000, BURST), (2_000, 1)):
        costs = {kind: median(measure(kind, 4, messages, burst) for _ in range(rounds)) for kind in DURABILITIES}
        journals.append(
            Case(
                f"4 members, {messages:,} messages each, {burst} a turn",
                {"members": 4, "messages": messages, "a_turn": burst}
                | {f"{kind.replace('-', '_')}_us_per_delivery": cost for kind, cost in costs.items()},
            )
        )
    write("delivery", in_bursts)
    write("delivery_with_journal", journals)
    write("delivery_one_a_turn", one_a_turn)


if __name__ == "__main__":
    main()
