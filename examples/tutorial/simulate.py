"""Runs the stack of a module in virtual time and writes a trace: `python simulate.py fifo FOLDER`."""

import sys
from importlib import import_module
from pathlib import Path

from causalcast.simulation import NS_PER_MS, Broadcasts, Network, Simulator, Uniform
from causalcast.trace import JsonLinesWriter


def main(module: str, folder: str) -> None:
    stack = import_module(module).STACK
    network = Network(Uniform(1 * NS_PER_MS, 30 * NS_PER_MS), fifo=False)
    path = Path(folder, f"{module}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    with JsonLinesWriter(path) as trace:
        done = Simulator(stack, ["ann", "bob", "cat"], Broadcasts(20), network=network, seed=1, trace=trace).run()
    print(f"{stack.name}: {done.broadcasts} broadcasts, {done.sends} messages sent, {done.deliveries} deliveries")


if __name__ == "__main__":
    main(*sys.argv[1:])
