"""Forty processes on the loopback interface, one contact, joins, departures and kills; then the audit of it all.

Run `make demo-gossip`, or `python -m demo.gossip`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from demo.crowd import Outcome, Plan, perform
from demo.verdict import console, judge

OUTPUT: Final = Path("build/demo-gossip")


def main() -> int:
    """Run it; 0 only if the audit passes."""
    screen = console()
    plan = Plan()
    screen.print(
        f"Stack {plan.stack}: {plan.members} processes on TCP that know one contact, {plan.joins} more that join "
        f"later, {plan.leaves} that leave, {plan.kills} killed with SIGKILL",
        highlight=False,
    )

    def tell(news: str) -> None:
        screen.print(f"  {news}", highlight=False)

    def run() -> Outcome:
        outcome = asyncio.run(perform(plan, OUTPUT, tell))
        tell(f"{outcome.messages:,} messages; all had them {outcome.settle_seconds:.1f} s after the last")
        return outcome

    return judge(
        run,
        lambda outcome: (outcome.traces, outcome.killed),
        "every promised property holds, for all who were there long enough to be owed anything",
        screen,
    )


if __name__ == "__main__":
    sys.exit(main())
