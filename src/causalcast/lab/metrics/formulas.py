"""What needs no run: properties of models and of protocols that a document states as formulas.

Each is a function of parameters of the experiment. Where there is code of ours for what the document says, the
function asks that code, not the formula.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

from causalcast.protocols import stack as stack_of
from causalcast.simulation import Exponential, Weibull, World
from causalcast.simulation.world import Receive, Take

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.lab.metrics.base import Measured
    from causalcast.protocols.ordering import Ordering

_BASELINE_NS: Final = 1_000_000_000


class _Always:
    """A source of randomness that always draws the same."""

    def __init__(self, drawn: float) -> None:
        self._drawn = drawn

    def random(self) -> float:
        """That number."""
        return self._drawn


def weibull_mean(scale: float, shape: float) -> float:
    """The mean of the Weibull part of a latency: scale x gamma(1 + 1/shape) (document 004, section 8.1.2)."""
    return scale * math.gamma(1 + 1 / shape)


def weibull_mean_factor(scale: float, shape: float) -> float:
    """The mean latency over its baseline (document 004, section 8.1.2)."""
    return 1 + weibull_mean(scale, shape)


def weibull_baseline(scale: float, shape: float, mean_latency: float) -> float:
    """The baseline that gives a mean latency, in the unit of that (document 004, section 8.1.2)."""
    return mean_latency / weibull_mean_factor(scale, shape)


def latency_truncation(scale: float, shape: float) -> float:
    """The longest latency that our model draws, over its baseline (document 004, section 8.1.2)."""
    longest = Weibull(_BASELINE_NS, scale, shape).draw(_Always(math.nextafter(1.0, 0.0)))  # type: ignore[arg-type]
    return longest / _BASELINE_NS


def interval_truncation(limit: float) -> float:
    """The longest send interval that our model draws, over its mean (document 004, section 8.1.1)."""
    longest = Exponential(_BASELINE_NS, limit).draw(_Always(math.nextafter(1.0, 0.0)))  # type: ignore[arg-type]
    return longest / _BASELINE_NS


def dependency_dots(stack: str) -> str:
    """What C:2 of figure 19 carries of its past {A1, B1, A2, C1} (document 004, section 4.4.1)."""
    world = World(stack_of(stack), ["A", "B", "C", "D"])
    world.broadcast("A")
    world.broadcast("B")
    _bring(world, "B", "A")
    world.broadcast("A")
    world.broadcast("C")
    for sender in ("A", "B", "A"):
        _bring(world, sender, "C")
    tag = world.broadcast("C")
    return "{" + ",".join(f"{origin}{counter}" for origin, counter in sorted(tag.context)) + "}"


def dag_words(stack: str) -> float:
    """Words of a graph in which C:1 has A:1 and B:1 before it, and nothing is stable (document 004, 8.3.1.1)."""
    world = World(stack_of(stack), ["A", "B", "C", "D"])
    for sender in ("A", "B"):
        world.broadcast(sender)
        _bring(world, sender, "C")
    world.broadcast("C")
    ordering: Ordering = cast("Any", world.processes["C"]).ordering
    return ordering.words()


def stable_vector_words(vectors: str) -> float:
    """Words at B of four, of version vectors with stability: A:1 and A:2 not stable, C:1 waiting for A:3 (8.3.1.2)."""
    world = World(stack_of(vectors), ["A", "B", "C", "D"])
    for _ in range(3):
        world.broadcast("A")
        _bring(world, "A", "C")
    for _ in range(2):
        _bring(world, "A", "B")
    world.broadcast("C")
    _bring(world, "C", "B")
    ordering: Ordering = cast("Any", world.processes["B"]).ordering
    return ordering.words()


def group_rate(nodes: int, interval_ms: float) -> float:
    """Messages a second that the whole group sends (document 004, section 8.4.3)."""
    return 1000 * nodes / interval_ms


def _bring(world: World, sender: str, receiver: str) -> None:
    """The oldest message from one to the other arrives, and the application takes what that brings."""
    world.do(Receive(sender, receiver))
    while world.ports[receiver].queue:
        world.do(Take(receiver))


CALCULATIONS: Final[dict[str, Callable[..., Measured]]] = {
    function.__name__: function
    for function in (
        weibull_mean,
        weibull_mean_factor,
        weibull_baseline,
        latency_truncation,
        interval_truncation,
        dependency_dots,
        dag_words,
        stable_vector_words,
        group_rate,
    )
}
