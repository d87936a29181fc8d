"""`tcb-dynamic` on real sockets: whatever can happen at once, stability at k members, options that do not fit."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

import causalcast
from causalcast import GroupClosedError, UnsupportedByStackError
from tests.runtime.cluster import run
from tests.runtime.crowd import audited, churn, crowd

if TYPE_CHECKING:
    from pathlib import Path


def test_a_message_is_replicated_at_as_many_members_as_have_taken_it() -> None:
    async def main() -> None:
        async with crowd("ab") as members:
            group = members.apps["a"].group
            silent = await members.join("c")
            silent._task.cancel()  # its application takes nothing any more
            tag = await group.broadcast(b"x")
            await group.replicated(tag, 1)
            await group.replicated(tag, 2)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(group.replicated(tag, 3), 0.3)
            assert members.apps["a"].stable == []
            with pytest.raises(ValueError, match="at 1 member or more"):
                await group.replicated(tag, 0)
            waiting = asyncio.create_task(group.replicated(tag, 4))
            silent._task = asyncio.create_task(silent._run())
            await group.replicated(tag, 3)
            await members.join("d")
            await waiting
            never = asyncio.create_task(members.apps["b"].group.replicated(tag, 9))
            await asyncio.sleep(0.01)
            await members.leave("b")
            with pytest.raises(GroupClosedError, match="before 9 members had"):
                await never
        async with causalcast.open("a", listen="127.0.0.1:0") as fixed:
            with pytest.raises(UnsupportedByStackError, match="wait for `Stable`"):
                await fixed.replicated(await fixed.broadcast(b"x"), 1)

    run(main())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"peers": {"b": "127.0.0.1:1"}}, "come and go and are not listed"),
        ({"stack": "tcb", "evict_after": 9.0}, "evict_after is for `tcb-dynamic`: 'tcb' has no use for it"),
        ({"stack": "plumtree", "give_state": bytes}, "give_state is for `tcb-dynamic`"),
        ({"evict_after": 0.5}, "evict_after is 4 seconds at least"),
        ({"stack": "plumtree", "journal": "x.journal"}, "cannot recover"),
        ({"frame_limit": 1_000}, "need a frame limit"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises((UnsupportedByStackError, ValueError), match=complaint):
        causalcast.open("a", **{"listen": "127.0.0.1:0", "stack": "tcb-dynamic", **options})


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_to_members_the_audit_finds_nothing(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        async with crowd("abcde", trace=tmp_path) as members:
            speaking = asyncio.create_task(members.speak_at_random(random.Random(seed)))
            await churn(members, random.Random(seed), 30)
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            await members.at_rest()

    run(main())
    audited(tmp_path)
