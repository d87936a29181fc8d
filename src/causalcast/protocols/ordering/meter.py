"""What the decisions of an ordering cost, counted."""

from __future__ import annotations


class Meter:
    """A running count of operations: words of metadata that a delivery or stability decision looked at.

    An entry of a vector and an edge of the graph are a word each; entries packed together count by the 64-bit word.
    The count is no part of a process's state: it pickles as if it were 0, so that the explorer merges states that
    differ in nothing else.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __reduce__(self) -> tuple[type[Meter], tuple[()]]:
        return Meter, ()
