"""Mistakes that could be made while writing these protocols: off by one, a missing update, two lines swapped."""

from __future__ import annotations

from tests.protocols.mutants import Mutant

PLAUSIBLE = (
    Mutant(
        "repeated-message-is-new",
        "tcb",
        (
            (
                "        if counter <= delivered:\n            return\n",
                "        if counter < delivered:\n            return\n",
            ),
        ),
        frozenset({"P8"}),
        nodes=2,
        broadcasts=1,
        case={"duplicates": 1},
    ),
    Mutant(
        "heard-one-too-few",
        "tcb",
        (("for counter in range(old + 1, new + 1)", "for counter in range(old + 1, new)"),),
        frozenset({"P6"}),
        nodes=2,
        broadcasts=1,
    ),
    Mutant(
        "waits-for-itself-to-agree",
        "tcb",
        (
            (
                "[slot for slot in range(len(self._roster)) if slot != self._my_slot]",
                "[slot for slot in range(len(self._roster))]",
            ),
        ),
        frozenset({"P6"}),
        nodes=2,
        broadcasts=1,
    ),
    Mutant(
        "stable-queued-before-the-delivery",
        "tcb",
        (
            (
                "            self._port.deliver(Message(message.payload, tag))\n            for after",
                "            for after",
            ),
            (
                "            self._hear(slot, counts, past)\n        if self._phantoms:",
                "            self._hear(slot, counts, past)\n"
                "            self._port.deliver(Message(message.payload, tag))\n        if self._phantoms:",
            ),
        ),
        frozenset({"P5"}),
        nodes=2,
        broadcasts=1,
    ),
    Mutant(
        "does-not-wait",
        "tcb",
        (
            (
                "                missing.append(dot)\n                bits |= 1 << before_slot\n",
                "                missing.append(dot)\n",
            ),
        ),
        frozenset({"P3", "error"}),
    ),
    Mutant(
        "taken-not-counted",
        "tcb",
        (("        self._taken[self._slots[tag.origin]] = tag.counter\n", ""),),
        frozenset({"P4"}),
    ),
    Mutant(
        "own-message-speaks-of-the-next",
        "tcb",
        (("            self._idle.took()\n", "            len(self._context) == 1 or self._idle.took()\n"),),
        frozenset({"P6"}),
        broadcasts=3,
        nodes=2,
    ),
    Mutant(
        "repeated-message-is-new",
        "cbcast",
        (("if counter <= self._delivered[slot] or", "if counter < self._delivered[slot] or"),),
        frozenset({"P1"}),
        nodes=2,
        broadcasts=1,
        case={"duplicates": 1},
    ),
    Mutant(
        "repeated-while-it-waits",
        "cbcast",
        (
            (" or counter in self._here[slot]:", ":"),
            ("self._here[slot].remove(counter)", "self._here[slot].discard(counter)"),
        ),
        frozenset({"P1"}),
        case={"duplicates": 1},
    ),
    Mutant(
        "one-missing-is-fine",
        "cbcast",
        (("if needed > delivered:", "if needed > delivered + 1:"),),
        frozenset({"P3"}),
    ),
    Mutant(
        "delivery-not-counted",
        "cbcast",
        (("            self._delivered[slot] = counter\n", ""),),
        frozenset({"P2"}),
        nodes=2,
        broadcasts=3,
    ),
    Mutant(
        "one-waits-per-dot",
        "cbcast",
        (("self._waiting.setdefault(missing, []).append(candidate)", "self._waiting[missing] = [candidate]"),),
        frozenset({"P2"}),
        broadcasts=(2, 1, 0),
        case={"fifo": False},
    ),
    Mutant(
        "sent-before-it-is-counted",
        "cbcast",
        (
            ("        taken[self._my_slot] += 1\n", ""),
            (
                "        tag = self._tag(self._me, self._my_slot, counts)\n        self._dissemination",
                "        tag = self._tag(self._me, self._my_slot, counts)\n"
                "        taken[self._my_slot] += 1\n"
                "        self._dissemination",
            ),
            ("if message.counts[slot] < 1:", "if message.counts[slot] < 0:"),
        ),
        frozenset({"P2", "P4"}),
        broadcasts=1,
    ),
    Mutant(
        "taken-not-counted",
        "cbcast",
        (("            self._taken[self._slots[tag.origin]] = tag.counter\n", "            del tag\n"),),
        frozenset({"P4"}),
    ),
)
