"""The two published checkers, ported as they are printed, to be measured against: document 000's algorithm 16 and
document 004's algorithm 14 (deliveries; its traces here have no stability reports). Neither is used by the audit.
"""

from __future__ import annotations

from typing import TypeAlias

Dot: TypeAlias = tuple[int, int]
Logs: TypeAlias = list[list[Dot]]
"""For each process, the messages in its log's order; a process's own ones are its broadcasts."""


def algorithm_16(logs: Logs) -> bool:
    """Document 000, section 4.2: look for each cause before its effect, from the start of every log."""
    history: dict[Dot, list[Dot]] = {}
    for process, log in enumerate(logs):
        since: list[Dot] = []
        for message in log:
            if message[0] == process:
                history[message] = since
                since = []
            since.append(message)
    for m1, causes in history.items():
        for m2 in causes:
            for process, log in enumerate(logs):
                if process == m1[0]:
                    continue
                for m3 in log:
                    if m2 == m3:
                        break
                    if m1 == m3:
                        return False
    return True


def algorithm_14(logs: Logs) -> bool:
    """Document 004, section 7.1: version vectors of peers and dots, a stability matrix a peer, branching to senders.

    The branching, recursive in the document, is a stack of peers here.
    """
    count = len(logs)
    peer = [[0] * count for _ in range(count)]
    matrix = [[[0] * count for _ in range(count)] for _ in range(count)]
    vector: dict[Dot, list[int]] = {}
    index = [0] * count
    for start in range(count):
        stack = [start]
        while stack:
            at = stack[-1]
            if index[at] == len(logs[at]) or (len(stack) > 1 and logs[stack[-2]][index[stack[-2]]] in vector):
                stack.pop()
                continue
            dot = logs[at][index[at]]
            if dot[0] == at:
                if dot in vector:
                    return False
                peer[at][at] += 1
                vector[dot] = list(peer[at])
                matrix[at][at] = list(peer[at])
            elif dot not in vector:
                if dot[0] in stack or index[dot[0]] == len(logs[dot[0]]):
                    return False
                stack.append(dot[0])
                continue
            else:
                sent, here = vector[dot], peer[at]
                if here[dot[0]] + 1 != sent[dot[0]] or any(here[j] < sent[j] for j in range(count) if j != dot[0]):
                    return False
                here[dot[0]] += 1
                matrix[at][dot[0]] = sent
                matrix[at][at] = list(here)
            index[at] += 1
    return True
