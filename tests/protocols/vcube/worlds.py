"""Random schedules of subscriptions, publications, crashes and suspicions, judged by the checker of the properties."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from causalcast.simulation.properties import ERROR, Judge, Violation
from causalcast.simulation.world import (
    Broadcast,
    Crash,
    Fire,
    ImpossibleStepError,
    Receive,
    Step,
    Subscribe,
    Suspect,
    Take,
    Trust,
    Unsubscribe,
    World,
)

if TYPE_CHECKING:
    from causalcast.protocols import Process, Stack


def sizes(process: Process) -> dict[str, int]:
    """What must be empty at rest, of all layers."""
    found: dict[str, int] = {}
    for layer in (process.membership, process.dissemination, process.ordering):  # type: ignore[attr-defined]
        if hasattr(layer, "tables"):
            found.update({f"{type(layer).__name__}.{name}": size for name, size in layer.tables().items()})
    return found


def _sizes_without_stability(process: Process) -> dict[str, int]:
    """Once somebody has crashed for whom all wait, nothing becomes stable (P6 is not asked either) and graphs stay."""
    return {name: size for name, size in sizes(process).items() if name not in {"TCB.graph", "TCB.phantoms"}}


class Run:
    """One random schedule."""

    def __init__(
        self,
        stack: Stack,
        seed: int,
        *,
        members: int,
        actions: int,
        topics: tuple[str, ...] = ("t",),
        crashes: int = 0,
        wrong: int = 0,
        corrected: bool = False,
        cut: bool = False,
        late: float = 0.3,
        duplicates: bool = False,
    ) -> None:
        self.draw = random.Random(seed)
        self.names = [f"p{i}" for i in range(members)]
        self.world = World(replace(stack, suspects=True) if crashes or wrong else stack, self.names)
        self.judge = Judge(self.world)
        self.topics = topics
        self.actions = actions
        self.crashes = crashes
        self.wrong = wrong
        self.corrected = corrected
        """Whether wrong suspicions are taken back some time."""
        self.cut = cut
        """Whether of what is in flight from a process that crashes only the first messages on each link arrive."""
        self.late = late
        self.duplicates = duplicates
        self.to_suspect: list[Step] = []
        self.to_trust: list[Trust] = []

    def run(self, limit: int = 60_000) -> list[Violation]:
        """Until nothing is left to do; what is broken."""
        world, draw = self.world, self.draw
        for _ in range(limit):
            steps = world.enabled(fifo=draw.random() < 0.5)
            if draw.random() < self.late:
                steps = [step for step in steps if not isinstance(step, Take)] or steps
            if draw.random() < 0.95:
                # Time passes slowly: a round of tests is longer than most messages are under way.
                steps = [step for step in steps if not isinstance(step, Fire)] or steps
            if self.actions and (not steps or draw.random() < 0.15):
                self.actions -= 1
                self.act()
            elif self.to_suspect and (not steps or draw.random() < 0.1):
                step = self.to_suspect.pop(draw.randrange(len(self.to_suspect)))
                if step.process not in world.crashed:
                    self.do(step)
            elif self.to_trust and (not steps or draw.random() < 0.02):
                trust = self.to_trust.pop(draw.randrange(len(self.to_trust)))
                if trust.process not in world.crashed:
                    self.do(trust)
            elif steps:
                self.step(draw.choice(steps))
            elif not self.actions:
                break
            self.judge.look()
        else:
            raise RuntimeError("still busy")
        checked = {*world.stack.promises, "P7", "P8", ERROR}
        asked = sizes if not self.world.crashed else _sizes_without_stability
        found = [*self.judge.violations, *self.judge.at_rest(asked)]
        return [violation for violation in found if violation.property in checked]

    def step(self, step: Step) -> None:
        result = self.world.do(step)
        if self.duplicates and isinstance(step, Receive) and self.draw.random() < 0.1:
            self.world.in_flight[step.sender, step.receiver].append(result)

    def act(self) -> None:
        draw, world = self.draw, self.world
        alive = [name for name in self.names if name not in world.crashed]
        name, topic = draw.choice(alive), draw.choice(self.topics)
        if self.crashes and draw.random() < 0.1 and len(alive) > 2:
            self.crashes -= 1
            self.do(Crash(name))
            self.to_trust = [step for step in self.to_trust if step.peer != name]
            self.to_suspect += [Suspect(other, name) for other in alive if other != name]
            if self.cut:
                for (sender, _), messages in world.in_flight.items():
                    if sender == name and messages:
                        del messages[draw.randrange(len(messages) + 1) :]
            return
        if self.wrong and draw.random() < 0.15:
            self.wrong -= 1
            peer = draw.choice([other for other in self.names if other != name])
            self.do(Suspect(name, peer))
            if self.corrected and peer not in world.crashed:
                self.to_trust.append(Trust(name, peer))
            return
        kind = draw.random()
        if not self.topics[0]:
            self.do(Broadcast(name, f"{self.actions}".encode()))
        elif kind < 0.25:
            self.do(Subscribe(name, topic))
        elif kind < 0.4:
            self.do(Unsubscribe(name, topic))
        else:
            self.do(Broadcast(name, f"{self.actions}".encode(), topic))

    def do(self, step: Step) -> None:
        """Take a step that may be refused: who does not subscribe does not publish."""
        try:
            self.world.do(step)
        except ImpossibleStepError as error:
            assert "subscribe" in str(error), error  # noqa: PT017
