"""Sixteen processes, topics by Zipf's law, subscribers that come and go; then the audit, topic by topic.

Run `make demo-pubsub`, or `python -m demo.pubsub`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from demo.newsroom import Outcome, Plan, perform
from demo.verdict import console, judge

OUTPUT: Final = Path("build/demo-pubsub")


def main() -> int:
    """Run it; 0 only if the audit passes."""
    screen = console()
    plan = Plan()
    screen.print(
        f"Stack {plan.stack}: {plan.members} processes on TCP, {plan.publications} publications to {plan.topics} "
        f"topics by Zipf's law, {plan.subscribers} subscribers each, {plan.changes} of whom go and are replaced",
        highlight=False,
    )

    def tell(news: str) -> None:
        screen.print(f"  {news}", highlight=False)

    def run() -> Outcome:
        outcome = asyncio.run(perform(plan, OUTPUT, tell))
        tell(
            f"{outcome.delivered:,} deliveries; the last of them {outcome.settle_seconds:.1f} s after the last command"
        )
        return outcome

    return judge(
        run,
        lambda outcome: (outcome.traces, ()),
        "every promised property holds in every topic, for all while they were subscribed",
        screen,
    )


if __name__ == "__main__":
    sys.exit(main())
