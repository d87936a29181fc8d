"""Tries every schedule of a small case of the stack of a module: `python explore.py fifo P3`.

Checks the named properties, or those that the stack promises.
"""

import sys
from importlib import import_module

from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.schedule import Schedule
from causalcast.simulation.shrink import shrink


def main(module: str, *properties: str) -> None:
    stack = import_module(module).STACK
    case = Case(stack, ("ann", "bob", "cat"), broadcasts=4, duplicates=1, properties=frozenset(properties) or None)
    outcome = explore(case)
    checked = " ".join(sorted(case.checked - {"error"}))
    print(f"{stack.name}: {checked} checked in {outcome.states:,} states")
    if outcome.found is None:
        end = "nothing is violated" if outcome.exhausted else "nothing is violated so far, there are more"
        print(f"{outcome.schedules:,} complete schedules: {end}")
        return
    found = Schedule(stack.name, case.names, outcome.found.schedule)
    print(shrink(found, outcome.found.violation.property, stack=stack).dump(), end="")
    sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
