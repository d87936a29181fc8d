"""Three members: a question, its answer, and something said at the same time."""

import asyncio

import causalcast
from causalcast import Delivered, Stable

MEMBERS = {
    "paris": "127.0.0.1:7401",
    "london": "127.0.0.1:7402",
    "tokyo": "127.0.0.1:7403",
}


async def member(name: str, everyone_done: asyncio.Barrier) -> None:
    peers = {peer: address for peer, address in MEMBERS.items() if peer != name}
    async with causalcast.open(name, listen=MEMBERS[name], peers=peers) as group:
        mine = None
        if name == "paris":
            mine = await group.broadcast(b"Shall we meet?")
        if name == "tokyo":
            mine = await group.broadcast(b"Good morning!")

        stable = 0
        async for event in group:
            match event:
                case Delivered(message):
                    print(f"{name} hears {message.payload.decode()!r}")
                    if mine is not None and message.tag.concurrent_with(mine):
                        print(f"  which was said while {name} spoke")
                    if message.payload == b"Shall we meet?" and name == "london":
                        mine = await group.broadcast(b"Yes, at noon.")
                case Stable(tag):
                    stable += 1
                    if stable == 3:
                        print(f"{name} knows that everyone has all; last was {tag.dot}")
                        break
        # A message is stable once all members have spoken after it: none may leave
        # while others still wait.
        await everyone_done.wait()


async def main() -> None:
    everyone_done = asyncio.Barrier(len(MEMBERS))
    await asyncio.gather(*(member(name, everyone_done) for name in MEMBERS))


if __name__ == "__main__":
    asyncio.run(main())
