"""Findings in words: each operation with its session and its place in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.audit.histories.history import FAILED

if TYPE_CHECKING:
    from causalcast.audit.histories.resolve import Resolved, Trouble

MAX_VALUE: Final = 60
MAX_WALK: Final = 20
"""Transactions of a circle that are shown."""


class Words:
    """Names what a history holds."""

    def __init__(self, resolved: Resolved, source: str) -> None:
        self.resolved = resolved
        self.history = resolved.history
        self.source = source
        self._keys = list(self.history.keys)
        self._values = list(self.history.values)
        self._sessions = list(self.history.sessions)

    def session(self, txn: int) -> str:
        """Return the session of a transaction."""
        return self._sessions[self.history.session[txn]]

    def place(self, txn: int) -> str:
        """Return where a transaction stands."""
        return f"session {self.session(txn)}, {self.source}:{self.history.line[txn]}"

    def write(self, write: int) -> str:
        """Describe a write."""
        resolved = self.resolved
        key, value = self._keys[resolved.write_key[write]], self._values[self.history.write_value[write]]
        return f"{self._named('write', key, _short(value))} ({self.place(int(resolved.write_txn[write]))})"

    def read(self, read: int) -> str:
        """Describe a read and what it returned."""
        resolved = self.resolved
        start, end = int(resolved.read_starts[read]), int(resolved.read_starts[read + 1])
        shown = [_short(self._values[value]) for value in self.history.seen[start : min(end, start + 12)]]
        if self.history.model == "register":
            value = shown[0] if shown else "nothing"
        else:
            value = f"[{' '.join(shown)}{' ...' if end - start > 12 else ''}]"
        key = self._keys[resolved.read_key[read]]
        return f"{self._named('read', key, value)} ({self.place(int(resolved.read_txn[read]))})"

    def trouble(self, trouble: Trouble) -> tuple[str, tuple[str, ...]]:
        """Describe what is wrong with one read by itself."""
        said = {
            "aborted-read": "a read returned what a failed operation wrote",
            "future-read": "a transaction read what it wrote only later",
            "intermediate-read": "a read returned what its writer overwrote in the same transaction",
            "own-write-missed": "a transaction did not read what it had written itself",
        }
        return said[trouble.kind], (self.write(trouble.write), self.read(trouble.read))

    def missed(self, read: int, needed: int, returned: int) -> tuple[str, tuple[str, tuple[str, ...]]]:
        """Describe a read that missed a write. For lists and sets `needed` is the write, else its transaction."""
        resolved = self.resolved
        if self.history.model != "register":
            return "missing-element", (
                "a read lacks an element that it had to contain",
                (self.write(needed), self.read(read)),
            )
        key = int(resolved.read_key[read])
        newer = self._write_of(needed, key)
        if returned < 0:
            return "initial-read", (
                "a read returned the initial state after a write",
                (self.write(newer), self.read(read)),
            )
        older = self._write_of(returned, key)
        witness = (self.write(older), self.write(newer), self.read(read))
        return "stale-read", ("a read returned a write that had been overwritten before", witness)

    def listed(self, kind: str, read: int, one: int, other: int) -> tuple[str, tuple[str, ...]]:
        """Describe what is wrong with a list."""
        if kind == "duplicate-element":
            return "a list shows an element twice", (self.read(read),)
        if kind == "incompatible-order":
            return "two reads of a list are no prefixes of one another", (self.read(read), self.read(one))
        said = "a list shows two elements of a session in another order than it appended them in"
        return said, (self.write(one), self.write(other), self.read(read))

    def fork(self, first: int, second: int) -> tuple[str, tuple[str, ...]]:
        """Describe two reads that saw a group of keys forked."""
        reads = self._reads_of(int(self.resolved.read_txn[first])), self._reads_of(int(self.resolved.read_txn[second]))
        return "each of two reads saw a write that the other did not", tuple(text for part in reads for text in part)

    def walk(self, nodes: list[int], why: dict[tuple[int, int], int] | None = None) -> tuple[str, ...]:
        """Describe a circle of transactions, edge by edge."""
        observed = set(
            zip(self.resolved.observed_before.tolist(), self.resolved.observed_after.tolist(), strict=True)
            if len(nodes) < 10_000
            else ()
        )
        lines = []
        for first, second in list(zip(nodes, [*nodes[1:], nodes[0]], strict=True))[:MAX_WALK]:
            read = (why or {}).get((first, second))
            if read is not None:
                reason = f"ordered before the next by {self.read(read)}, which must not miss it"
            elif (first, second) in observed:
                reason = "read by the next"
            elif self.session(first) == self.session(second):
                reason = "before the next in its session"
            else:
                reason = "before the next in a list"
            lines.append(f"{self._transaction(first)}: {reason}")
        if len(nodes) > MAX_WALK:
            lines.append(f"... and {len(nodes) - MAX_WALK} more")
        return tuple(lines)

    def _transaction(self, txn: int) -> str:
        writes = [i for i, owner in enumerate(self.history.write_txn) if owner == txn][:4]
        keys = (self._keys[self.resolved.write_key[i]] for i in writes)
        values = (_short(self._values[self.history.write_value[i]]) for i in writes)
        done = ", ".join(self._named("write", key, value) for key, value in zip(keys, values, strict=True))
        state = "failed " if self.history.status[txn] == FAILED else ""
        return f"{state}{done or 'reads only'} ({self.place(txn)})"

    def _reads_of(self, txn: int) -> list[str]:
        return [self.read(read) for read, owner in enumerate(self.history.read_txn) if owner == txn][:MAX_WALK]

    def _write_of(self, txn: int, key: int) -> int:
        """Return a transaction's last write of a key."""
        resolved = self.resolved
        return int(((resolved.write_txn == txn) & (resolved.write_key == key)).nonzero()[0][-1])

    def _named(self, what: str, key: str, value: str) -> str:
        if self.history.model == "register":
            return f"{what} {_short(key)}={value}" if key else f"{what} {value}"
        verb = {"write": "append" if self.history.model == "list" else "add", "read": "read"}[what]
        return f"{verb} {_short(key)} {value}" if key else f"{verb} {value}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."
