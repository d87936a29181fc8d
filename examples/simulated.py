"""The same protocols in virtual time: four processes, two stacks, one of them without order. No sockets, no waiting."""

from collections import Counter

from causalcast.simulation import NS_PER_MS, Network, Uniform, simulate
from causalcast.trace import TraceEvent


class Log:
    """A trace kept in memory; a file is `causalcast.trace.JsonLinesWriter(path)`."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def write(self, event: TraceEvent) -> None:
        self.events.append(event)

    def flush(self) -> None: ...

    def close(self) -> None: ...


def main() -> None:
    network = Network(delay=Uniform(1 * NS_PER_MS, 100 * NS_PER_MS))
    for stack in ("tcb", "unordered"):
        log = Log()
        simulator = simulate(stack, nodes=4, messages=50, seed=1, network=network, trace=log)
        kinds = Counter(event.event for event in log.events)
        print(f"{stack}: {dict(sorted(kinds.items()))} in {simulator.queue.now / 1e9:.2f} s of virtual time")


if __name__ == "__main__":
    main()
