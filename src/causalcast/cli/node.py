"""`causalcast node`: one member of a group, driven by lines."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import msgspec
import typer

import causalcast
from causalcast.cli.control import answering
from causalcast.cli.errors import CommandError
from causalcast.cli.lines import LineError, Publish, Subscribe, Unsubscribe, parse_line
from causalcast.cli.pipes import LineReader, LineWriter
from causalcast.model import (
    CausalcastError,
    Delivered,
    MembershipChanged,
    NotAMemberError,
    PayloadTooLargeError,
    Stable,
    Subscribed,
    TopicError,
    Unsubscribed,
    UnsupportedByStackError,
)
from causalcast.protocols import DEFAULT_STACK, stack
from causalcast.protocols.topics import MAX_TOPIC_BYTES
from causalcast.runtime import Tls
from causalcast.runtime.address import Address
from causalcast.runtime.journal import DURABILITIES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from causalcast.model import Event, Tag
    from causalcast.runtime import Durability, Group

STDIN, STDOUT = 0, 1

LONGEST_COMMAND: Final = len("pub  ") + MAX_TOPIC_BYTES
"""What a line about a topic adds to its payload."""

EXIT_EVICTED: Final = 4
"""The others have taken this member for crashed."""

LAST_WORDS_SECONDS: Final = 2.0
"""How long a node that ends waits for the reader of its output."""


def node(  # noqa: PLR0913, PLR0917 - the options of the command
    name: Annotated[str, typer.Argument(metavar="NAME", help="This member's name, unique in the group.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the other members reach this one.")],
    peers: Annotated[
        str, typer.Option(metavar="NAME=HOST:PORT,...", help="All other members and where they listen.")
    ] = "",
    join: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT,...", help="Where a member listens, to join through; where members come and go."
        ),
    ] = "",
    advertise: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where others reach this member if not at --listen; on tcb-dynamic."),
    ] = "",
    evict_after: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Evict a member of which nothing was heard for so long; on tcb-dynamic. Without it nobody is evicted "
            "unless `causalcast evict` says so.",
        ),
    ] = None,
    stack_name: Annotated[str, typer.Option("--stack", help="One of `causalcast stacks`.")] = DEFAULT_STACK,
    topics: Annotated[
        bool, typer.Option("--topics", help="Lines are `sub TOPIC`, `unsub TOPIC` and `pub TOPIC TEXT`.")
    ] = False,
    group: Annotated[str, typer.Option(help="Members of different groups do not talk.")] = "default",
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help="Write this member's trace there.")] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="PEM", help="This member's certificate, which names it.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="PEM", help="The certificate's key.")] = None,
    tls_authority: Annotated[
        Path | None, typer.Option(metavar="PEM", help="Who signs the members' certificates.")
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What this member comes back with when it is started again."),
    ] = None,
    durability: Annotated[
        str,
        typer.Option(
            help="`every-message`: on the disk before it counts; `interval`: survives the process, not the machine; "
            "`none`: no journal."
        ),
    ] = "every-message",
    control: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A socket for `causalcast status`, `members`, `evict`, `leave`; only this user may ask.",
        ),
    ] = None,
    metrics: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics there, at /metrics.")
    ] = "",
) -> None:
    """Take part in a group: lines on standard input are broadcast, events leave on standard output as JSON lines.

    With `--topics`, and always on `vcube-ps`, `srpt-s` and `srpt-b`, a line is `sub TOPIC`, `unsub TOPIC` or
    `pub TOPIC TEXT`.

    An event is an object a line: `{"event":"delivered","origin":"london","counter":1,"payload":"hello","context":[]}`.
    Others are `broadcast` (a line of this member), `stable` and `membership`. A payload that is not UTF-8 comes as
    `payload_base64`. At the end of its input the node goes on delivering; SIGINT or SIGTERM ends it.

    Examples, one terminal each:

    - `causalcast node paris --listen 127.0.0.1:7401 --peers london=127.0.0.1:7402`

    - `causalcast node london --listen 127.0.0.1:7402 --peers paris=127.0.0.1:7401`

    On stacks whose members come and go, the first one begins and the others join through any that is there:

    - `causalcast node paris --listen 127.0.0.1:7401 --stack cptcast`

    - `causalcast node london --listen 127.0.0.1:7402 --stack cptcast --join 127.0.0.1:7401`

    On `tcb-dynamic` a member that crashed is evicted, by `causalcast evict` or by `--evict-after`. One that is evicted
    although it is alive ends with status 4.

    With `--journal` a node that is killed or ended goes on where it was when it is started again, without joining
    again; `causalcast leave` has it leave for good.
    """
    chosen = stack(stack_name)
    if topics and not chosen.topics:
        raise CommandError(f"--topics: {stack_name!r} has no topics; `causalcast stacks` says which stacks have", 2)
    logging.basicConfig(level=logging.WARNING, format="causalcast: %(message)s")
    given = (tls_certificate, tls_key, tls_authority)
    if any(given) and not all(given):
        raise CommandError("TLS takes all three of --tls-certificate, --tls-key and --tls-authority", 2)
    tls = Tls(*filter(None, given)) if all(given) else None
    if durability not in DURABILITIES:
        raise CommandError(f"--durability: {durability!r} is none of {', '.join(DURABILITIES)}", 2)
    member = causalcast.open(
        name,
        listen=listen,
        peers=parse_peers(peers),
        join=tuple(filter(None, join.split(","))),
        stack=stack_name,
        group=group,
        trace=trace,
        tls=tls,
        journal=journal,
        durability=cast("Durability", durability),
        advertise=advertise or None,
        evict_after=evict_after,
    )
    # Where topics are all that there is, nobody is subscribed to the group itself.
    by_topic = topics or (chosen.topics and chosen.topic_message is None)
    extras = (control, Address.parse(metrics) if metrics else None)
    asyncio.run(_run(member, listen, *extras, by_topic=by_topic))


def parse_peers(text: str) -> dict[str, str]:
    """`NAME=HOST:PORT,...` as a dictionary; raises `CommandError` where it is something else."""
    peers: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, address = part.partition("=")
        if not (name and equals and address):
            raise CommandError(f"--peers: {part!r} is not NAME=HOST:PORT", 2)
        if name in peers:
            raise CommandError(f"--peers: {name!r} is given twice", 2)
        peers[name] = address
    return peers


async def _run(member: Group, listen: str, control: Path | None, metrics: Address | None, *, by_topic: bool) -> None:
    stop, leave = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    output = LineWriter(STDOUT)
    async with contextlib.AsyncExitStack() as exits:
        try:
            group = await _enter(member, exits, stop)
        except CausalcastError:
            raise
        except OSError as error:
            raise CommandError(f"cannot open {member.name} on {listen}: {_reason(error)}", 2) from error
        if group is None:
            return
        if control is not None:
            await exits.enter_async_context(answering(group, control, leave))
        if metrics is not None:
            await exits.enter_async_context(_serving_metrics(group, metrics))
        tasks = [
            asyncio.create_task(task)
            for task in (
                _tell(group, output),
                _speak(group, output, stop, by_topic=by_topic),
                stop.wait(),
                leave.wait(),
                output.broken.wait(),
            )
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for task in done:
            await task
        if leave.is_set():
            await group.leave()
    await output.close(LAST_WORDS_SECONDS)
    if group.evicted:
        raise CommandError(
            f"{group.name} was evicted: the other members took it for crashed; it can join again under a new name",
            EXIT_EVICTED,
        )
    if output.error is not None:
        raise CommandError(f"cannot write to standard output: {output.error.strerror}", 2)


@contextlib.asynccontextmanager
async def _serving_metrics(group: Group, address: Address) -> AsyncIterator[None]:
    try:
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - an optional dependency

        from causalcast.runtime.metrics import GroupCollector  # noqa: PLC0415
    except ImportError:
        raise CommandError("--metrics needs the extra `metrics`: run `pip install 'causalcast[metrics]'`", 3) from None
    registry = CollectorRegistry()
    registry.register(GroupCollector(group))
    try:
        server, _ = start_http_server(address.port, address.host or "0.0.0.0", registry)
    except OSError as error:
        raise CommandError(f"cannot serve metrics on {address}: {_reason(error)}", 2) from error
    try:
        yield
    finally:
        # In a thread: a scrape that is under way asks the loop that runs here.
        await asyncio.to_thread(server.shutdown)
        server.server_close()


async def _enter(member: Group, exits: contextlib.AsyncExitStack, stop: asyncio.Event) -> Group | None:
    """Open the group, which takes as long as a contact does to answer; `None` if it is to end before."""
    entering = asyncio.create_task(exits.enter_async_context(member))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((entering, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not entering.done():
        entering.cancel()
        await asyncio.wait((entering,))
        return None
    return await entering


def _reason(error: OSError) -> str:
    """Without what asyncio puts around it."""
    if error.errno is not None and error.errno > 0:
        reason = os.strerror(error.errno)
        return f"{error.filename}: {reason}" if error.filename else reason
    return error.strerror or str(error)


async def _speak(group: Group, output: LineWriter, stop: asyncio.Event, *, by_topic: bool) -> None:
    """Do what every line of standard input asks for; at its end go on listening."""
    number = 0
    async for line in LineReader(STDIN, group.payload_limit + (LONGEST_COMMAND if by_topic else 0)):
        number += 1
        try:
            match parse_line(line, group.payload_limit, topics=by_topic):
                case Subscribe(topic):
                    group.subscribe(topic)
                case Unsubscribe(topic):
                    group.unsubscribe(topic)
                case Publish(payload, topic):
                    tag = await group.broadcast(payload, topic)
                    await output.write(_message_line("broadcast", tag, payload, topic))
        except PayloadTooLargeError as error:
            print(f"causalcast: not sent: {error}", file=sys.stderr)
        except (LineError, TopicError, NotAMemberError, UnsupportedByStackError) as error:
            print(f"causalcast: line {number}: {error}", file=sys.stderr)
    await stop.wait()


async def _tell(group: Group, output: LineWriter) -> None:
    async for event in group:
        await output.write(event_line(event))


def event_line(event: Event) -> bytes:
    """An event as one JSON object."""
    match event:
        case Delivered(message):
            return _message_line("delivered", message.tag, message.payload, message.topic)
        case Stable(tag, topic):
            return msgspec.json.encode(_fields("stable", tag, topic))
        case MembershipChanged(joined, left, evicted):
            return msgspec.json.encode({"event": "membership", "joined": joined, "left": left, "evicted": evicted})
        case Subscribed(topic):
            return msgspec.json.encode({"event": "subscribed", "topic": topic})
        case Unsubscribed(topic):
            return msgspec.json.encode({"event": "unsubscribed", "topic": topic})


def _fields(event: str, tag: Tag, topic: str) -> dict[str, object]:
    fields: dict[str, object] = {"event": event, "origin": tag.origin, "counter": tag.counter}
    if topic:
        fields["topic"] = topic
    return fields


def _message_line(event: str, tag: Tag, payload: bytes, topic: str = "") -> bytes:
    fields = _fields(event, tag, topic)
    try:
        fields["payload"] = payload.decode()
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(payload).decode()
    fields["context"] = tag.context
    return msgspec.json.encode(fields)
