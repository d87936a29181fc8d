"""Mistakes of the printed listings and of middleware that people built, from PROTOCOLS.md and docs/errata.md."""

from __future__ import annotations

from causalcast.simulation.local import Promptness
from tests.protocols.mutants import Mutant

MISSING = """\
                if any(delivered[self._slots[origin]] < counter for origin, counter in phantom.context):
                    continue
"""
HERE_ONLY = """\
                here = [dot for dot in phantom.context if delivered[self._slots[dot[0]]] >= dot[1]]
                phantom = Phantom(phantom.origin, phantom.counter, phantom.number, tuple(here))
"""

PRINTED = (
    Mutant(
        # Algorithms 4, 8, 10: (i, 0) is the first dot and V = 0, so a first message counts as delivered.
        "counters-from-0",
        "tcb",
        (
            (
                "        counter = self._taken[slot] + 1\n        context = tuple(self._context.items())\n"
                "        self._context =",
                "        counter = self._deliveries\n        context = tuple(self._context.items())\n"
                "        self._context =",
            ),
            ("        if counter < 1:\n", "        if counter < 0:\n"),
        ),
        frozenset({"P2", "P4"}),
        broadcasts=1,
    ),
    Mutant(
        # Algorithms 4, 8: the counter rises, then the context is set, and the next message waits for itself.
        "context-after-the-counter",
        "tcb",
        (
            ("self._context = {self._me: counter}", "self._context = {self._me: counter + 1}"),
            ("or dots.get(origin, counter - 1) != counter - 1", "or False"),
        ),
        frozenset({"P2"}),
        nodes=2,
        broadcasts=3,
    ),
    Mutant(
        # Section 3.6: the middleware makes the tag from what it has delivered, taken or not.
        "context-from-the-queue",
        "tcb",
        (
            (
                "        context = self._context\n        for",
                "        context = {}\n        for",
            ),
            (
                "            self._port.deliver(Message(message.payload, tag))\n            for after",
                "            self._port.deliver(Message(message.payload, tag))\n"
                "            for origin, before in tag.context:\n"
                "                if self._context.get(origin) == before:\n"
                "                    del self._context[origin]\n"
                "            self._context[tag.origin] = tag.counter\n"
                "            self._taken[slot] = tag.counter\n            for after",
            ),
        ),
        frozenset({"P4"}),
    ),
    Mutant(
        # Section 3.7: only the vector of the tag runs ahead of the application.
        "vector-from-the-queue",
        "tcb",
        (
            (
                "        tag = Tag(self._me, counter, context, tuple(self._taken), self._roster)\n",
                "        seen = list(self._delivered)\n        seen[slot] = counter\n"
                "        tag = Tag(self._me, counter, context, tuple(seen), self._roster)\n",
            ),
        ),
        frozenset({"P4"}),
    ),
    Mutant(
        # Algorithm 11, lines 50 to 53: what of a phantom's context is not delivered yet is forgotten.
        "phantom-forgets-what-is-missing",
        "tcb",
        (
            (
                MISSING,
                HERE_ONLY,
            ),
        ),
        frozenset({"P6"}),
    ),
    Mutant(
        # Algorithm 11: a phantom is applied before all that its sender broadcast earlier is delivered.
        "phantom-applied-early",
        "tcb",
        (
            ("            if spoken < phantom.counter - 1:\n                continue\n", ""),
            ("            if spoken == phantom.counter - 1:\n", "            if spoken <= phantom.counter - 1:\n"),
            (
                MISSING,
                HERE_ONLY,
            ),
        ),
        frozenset({"P4", "P5"}),
        broadcasts=(1, 0, 1),
        case={"fifo": False},
    ),
    Mutant(
        # Algorithm 11, line 30: stability moves when a message is received, not when it is delivered.
        "bits-move-at-reception",
        "tcb",
        (
            (
                "        node.bits = bits\n",
                "        node.bits = bits\n"
                "        here = [dot for dot in context if dot not in missing]\n"
                "        self._hear(slot, *self._past(slot, delivered, here, self._pasts(here)))\n",
            ),
        ),
        frozenset({"P5"}),
        nodes=2,
        broadcasts=(1, 2),
        case={"fifo": False},
    ),
    Mutant(
        # Algorithms 9, 11, line 25: `G[p] != dlv` waits for what is stable and not deleted yet.
        "waits-for-the-stable",
        "tcb",
        (
            ("            if all(pasts):\n", "            if all(before.stage == DELIVERED for before in befores):\n"),
            (
                "            if before is not None and before.past:\n",
                "            if before is not None and before.stage == DELIVERED:\n",
            ),
            (
                "            elif dot[1] > self._stable[self._slots[dot[0]]]:\n",
                "            elif before is not None or dot[1] > self._stable[self._slots[dot[0]]]:\n",
            ),
        ),
        frozenset({"P2"}),
        nodes=2,
    ),
    Mutant(
        # Section 4.5: what becomes stable together is reported in the order of the graph, not of causality.
        "stable-in-order-of-slot",
        "tcb",
        (
            (
                "            nodes.sort(key=_get_index)\n",
                "            nodes.sort(key=lambda node: (node.slot, node.counter))\n",
            ),
        ),
        frozenset({"P5"}),
    ),
    Mutant(
        # Errata, phantoms again: an old phantom that a link repeats takes back what was heard since.
        "old-phantom-takes-back",
        "tcb",
        (
            (
                "                past = self._lanes.join(past, [self._lanes.pack(self._heard[slot])])\n",
                "",
            ),
        ),
        frozenset({"P5", "P6", "error"}),
        broadcasts=(3, 0, 0),
        case={"duplicates": (1, 0, 0), "prompt": Promptness.ALL},
    ),
    Mutant(
        "counters-from-0",
        "cbcast",
        (
            ("        taken[self._my_slot] += 1\n", ""),
            ("        counts = tuple(taken)\n", "        counts = tuple(taken)\n        taken[self._my_slot] += 1\n"),
            ("if message.counts[slot] < 1:", "if message.counts[slot] < 0:"),
        ),
        frozenset({"P2", "P4"}),
        broadcasts=1,
    ),
    Mutant(
        # The message's own dot among what must be delivered before it.
        "waits-for-itself",
        "cbcast",
        (("needed = counts[slot] - 1 if slot == own else counts[slot]", "needed = counts[slot]"),),
        frozenset({"P2"}),
        broadcasts=1,
    ),
    Mutant(
        # Sections 3.6 and 3.7: the vector counts what the middleware has delivered.
        "vector-from-the-queue",
        "cbcast",
        (
            ("        counts = tuple(taken)\n", "        counts = tuple(self._delivered)\n"),
            (
                "if counts[self._my_slot] > self._taken[self._my_slot]:",
                "if counts[self._my_slot] > self._delivered[self._my_slot]:",
            ),
        ),
        frozenset({"P4"}),
    ),
    Mutant(
        # Section 3.6: delivery waits for the application instead of the queue, and nothing looks again.
        "delivery-waits-for-the-application",
        "cbcast",
        (("in enumerate(self._delivered):", "in enumerate(self._taken):"),),
        frozenset({"P2"}),
    ),
)
