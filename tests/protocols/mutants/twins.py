"""Mistakes of the listings for vectors (004, algorithms 3 and 7), and some that could be made, in the twins of tcb."""

from __future__ import annotations

from tests.protocols.mutants import Mutant

TWINS = (
    Mutant(
        # Algorithms 3 and 7: receptions are counted, so what overtakes an earlier message is taken for it.
        "receptions-counted",
        "vv",
        (
            (
                "if counter <= self._delivered[slot] or counter in self._here[slot]:",
                "if counter <= self._delivered[slot] + len(self._here[slot]):",
            ),
        ),
        frozenset({"P2"}),
        nodes=2,
        broadcasts=(2, 0),
        case={"fifo": False},
    ),
    Mutant(
        # Algorithm 7, lines 27 to 29, as far as they can be read: what is delivered at once is not counted.
        "delivery-not-counted",
        "vv",
        (("        self._delivered[slot] = counter\n", ""),),
        frozenset({"P2"}),
        nodes=2,
        broadcasts=(2, 0),
    ),
    Mutant(
        "queue-looked-through-once",
        "vv",
        (
            ("        while self._queue:\n", "        if self._queue:\n"),
            ("                break\n", "                return\n"),
        ),
        frozenset({"P2"}),
        nodes=2,
        broadcasts=(3, 0),
        case={"fifo": False},
    ),
    Mutant(
        # Section 3.6: the tag is what the middleware had delivered, untaken or not.
        "tags-of-the-middleware",
        "vv-classical",
        (
            (
                "        return message.seen\n",
                "        return message.counts\n",
            ),
        ),
        frozenset({"P4"}),
    ),
    Mutant(
        # Algorithm 7, line 38: only the columns where the sender's row was the smallest are looked at.
        "own-row-not-looked-at",
        "vv-stable",
        (("        if lowest[slot] == self._my_slot != slot:\n", "        if False:\n"),),
        frozenset({"P6"}),
        broadcasts=(0, 1, 0),
    ),
    Mutant(
        # Section 8.4.1 with stability: the rows hold the middleware's vectors, which run ahead of the applications.
        "rows-of-the-middleware",
        "vv-classical-stable",
        (
            (
                "    def _delivered_one(self, slot: int, tag: Tag) -> None:\n",
                "    def _deliver(self, message: VectorMessage) -> None:\n"
                "        self._row = message.counts\n"
                "        super()._deliver(message)\n\n"
                "    def _delivered_one(self, slot: int, tag: Tag) -> None:\n",
            ),
            ("self._my_slot else tag.counts)", "self._my_slot else self._row)"),
        ),
        frozenset({"P5"}),
        broadcasts=(2, 1, 0),
    ),
    Mutant(
        "phantom-applied-early",
        "vv-stable",
        (("        if counts[slot] <= self._delivered[slot]:\n", "        if True:\n"),),
        frozenset({"P5"}),
        nodes=2,
        broadcasts=(1, 1),
        case={"fifo": False},
    ),
    Mutant(
        "phantom-takes-back",
        "vv-stable",
        (("tuple(map(max, counts, self._matrix[slot]))", "counts"),),
        frozenset({"P5", "P6", "error"}),
        nodes=2,
        broadcasts=(3, 0),
        case={"fifo": False},
    ),
    Mutant(
        "phantom-forgotten",
        "vv-stable",
        (
            (
                "            del self._phantoms[slot]\n",
                "        del self._phantoms[slot]\n",
            ),
        ),
        frozenset({"P6"}),
        nodes=2,
        broadcasts=(1, 1),
        case={"fifo": False},
    ),
    Mutant(
        "stable-in-order-of-slot",
        "vv-stable",
        (
            (
                "sorted((self._unstable.pop(dot) for dot in dots), key=_number)",
                "(self._unstable.pop(dot) for dot in dots)",
            ),
        ),
        frozenset({"P5"}),
    ),
    Mutant(
        # Delivered vectors are dropped while a member may still name them.
        "vectors-dropped-at-delivery",
        "tcb-delivery",
        (
            (
                "    def _report(self, nodes: list[Node]) -> None:\n",
                "    def _hear(self, slot: int, counts: tuple[int, ...], past: int) -> None:\n"
                "        self._heard[slot] = counts\n"
                "        self._stable = tuple(self._delivered)\n"
                "        del self._graph[self._roster.names[slot], counts[slot]]\n\n"
                "    def _report(self, nodes: list[Node]) -> None:\n",
            ),
        ),
        frozenset({"P4"}),
        broadcasts=(1, 1, 1),
    ),
)
