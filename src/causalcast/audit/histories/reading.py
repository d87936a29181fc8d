"""Reading client histories: Jepsen's operations as EDN or JSON, and AWDIT's text format for tests.

*Jepsen.* Operations are maps with `type` (invoke, ok, fail, info), `process`, `f` and `value`. A process is a
session; without processes each completed operation is a session of its own. What `fail` says did not happen; what is
`info`, or was invoked and never completed, may have happened at any later time. Three kinds are understood:

- transactions of `[r key value]`, `[w key value]` (registers) or `[append key element]` (lists), whatever `f` is;
  with `f` `read` and `write` instead of `txn` this is the workload for long forks;
- `add` and `read` of a whole set;
- `write` and `read` of one register.

*AWDIT.* `w KEY VALUE` and `r KEY VALUE`, a line of `-` between transactions, of `=` between sessions.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

import msgspec

from causalcast.audit.errors import InputUnusable
from causalcast.audit.histories.edn import read_edn
from causalcast.audit.histories.forms import Broken, forms
from causalcast.audit.histories.history import FAILED, MAYBE, OK, History, Model, Read, Write
from causalcast.trace.importers import Rejected
from causalcast.trace.importers.items import lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

FORMATS: Final = ("jepsen-edn", "jepsen-json", "awdit")
MAX_BYTES: Final = 1 << 30
"""A larger file is refused; a history has to fit in memory, about 100 bytes a read or write."""
MAX_LINE: Final = 1 << 16
SET_ASIDE_SHOWN: Final = 1000
_STATUS: Final = {"ok": OK, "info": MAYBE, "fail": FAILED}
_SUFFIXES: Final = {
    ".edn": "jepsen-edn",
    ".json": "jepsen-json",
    ".jsonl": "jepsen-json",
    ".ndjson": "jepsen-json",
    ".txt": "awdit",
}
_Operations: TypeAlias = "list[Write | Read]"


@dataclass(slots=True)
class Loaded:
    """A history, and the operations that could not be used: line and reason."""

    history: History
    set_aside: list[tuple[int, str]] = field(default_factory=list)
    lost: int = 0
    """How many were set aside; the list holds the first ones."""

    def reject(self, line: int, reason: str) -> None:
        """Set an operation aside."""
        self.lost += 1
        if len(self.set_aside) < SET_ASIDE_SHOWN:
            self.set_aside.append((line, reason))


def load_history(path: Path, form: str | None = None) -> Loaded:
    """Read a history; without `form` the file's name decides.

    Raises:
        InputUnusable: no such file, no known format, or no operation of a kind that can be judged.
    """
    form = form or _SUFFIXES.get(path.suffix)
    if form not in FORMATS:
        raise InputUnusable(f"{path}: the name does not tell its format; give --format {', '.join(FORMATS)}")
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise InputUnusable(f"{path}: the file is empty")
            if size > MAX_BYTES:
                raise InputUnusable(f"{path}: {size:,} bytes; a history of more than {MAX_BYTES:,} is not read")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                loaded = _awdit(path, file) if form == "awdit" else _Jepsen(path, text, edn=form == "jepsen-edn").load()
    except OSError as error:
        raise InputUnusable(f"{path}: {error.strerror or error}") from error
    if not loaded.history.transactions or not (loaded.history.keys or loaded.history.snapshots):
        first = f"; the first: {path}:{loaded.set_aside[0][0]}: {loaded.set_aside[0][1]}" if loaded.set_aside else ""
        raise InputUnusable(f"{path}: no operation can be used{first}")
    return loaded


# --------------------------------------------------------------------------------------------- AWDIT


def _awdit(path: Path, file: BinaryIO) -> Loaded:
    loaded = Loaded(History("register"))
    session, began = 0, 0
    operations: _Operations = []

    def end() -> None:
        if operations:
            loaded.history.add(str(session), OK, began, operations)
            operations.clear()

    file.seek(0)
    for line in lines_of(path, file, MAX_LINE):
        if isinstance(line, Rejected):
            loaded.reject(line.line, line.reason)
            continue
        number, text = line
        words = text.decode("utf-8", "replace").split()
        if len(words) == 1 and set(words[0]) <= {"-"}:
            end()
        elif len(words) == 1 and set(words[0]) <= {"="}:
            end()
            session += 1
        elif len(words) == 3 and words[0] in ("r", "w"):
            began = began if operations else number
            kind, key, value = words
            operations.append(Write(key, value) if kind == "w" else Read(key, (value,)))
        else:
            loaded.reject(number, f"no 'r KEY VALUE', 'w KEY VALUE', '-----' or '=====': {text[:40]!r}")
    end()
    return loaded


# -------------------------------------------------------------------------------------------- Jepsen


@dataclass(frozen=True, slots=True)
class _Pending:
    """An invocation that waits for its completion."""

    line: int
    operation: dict[str, Any]


class _Jepsen:
    """One Jepsen history while it is read."""

    def __init__(self, path: Path, text: mmap.mmap, *, edn: bool) -> None:
        self.path = path
        self.text = text
        self.edn = edn
        self.loaded = Loaded(History("register"))
        self.model: Model | None = None
        self.pending: dict[str, _Pending] = {}
        self.invoked: dict[bytes, list[_Pending]] = {}
        """Invocations without a process, by what they write."""
        self.nameless = self.others = 0

    def load(self) -> Loaded:
        for found in forms(self.text, edn=self.edn):
            if isinstance(found, Broken):
                self.loaded.reject(found.line, found.reason)
                continue
            line, text = found
            try:
                self._take(line, self._read(text))
            except (ValueError, RecursionError) as error:
                reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
                self.loaded.reject(line, reason)
        for process, pending in self.pending.items():
            self._end(process, pending)
        for waiting in self.invoked.values():
            for pending in waiting:
                self._end(None, pending)
        history = self.loaded.history
        if self.nameless:
            history.notes.append("Operations name no process: each is a session of its own.")
        if self.others:
            history.notes.append(f"{self.others} operations of no client (nemesis and such) were left out.")
        return self.loaded

    def _end(self, process: str | None, pending: _Pending) -> None:
        """Take an invocation that was never completed."""
        try:
            self._complete(process, MAYBE, pending.line, pending.operation)
        except ValueError as error:
            self.loaded.reject(pending.line, str(error))

    def _read(self, text: bytes) -> dict[str, Any]:
        value = read_edn(text.decode()) if self.edn else msgspec.json.decode(text)
        if not isinstance(value, dict):
            raise ValueError("no map")
        return value

    def _take(self, line: int, operation: dict[str, Any]) -> None:
        kind = operation.get("type")
        process = operation.get("process")
        if isinstance(process, str) and not process.isdigit():
            self.others += 1
            return
        if kind == "invoke":
            self._invoke(line, operation, process)
        elif kind not in _STATUS:
            raise ValueError(f"type is {kind!r}, not invoke, ok, fail or info")
        elif process is None:
            waiting = self.invoked.get(_written(operation))
            if waiting:
                waiting.pop()
            self._complete(None, _STATUS[kind], line, operation)
        else:
            begun = self.pending.pop(str(process), None)
            if kind != "ok" and begun is not None:
                operation = operation | {"value": begun.operation.get("value")}
            self._complete(str(process), _STATUS[kind], line, operation)

    def _invoke(self, line: int, operation: dict[str, Any], process: Any) -> None:
        pending = _Pending(line, operation)
        if process is None:
            self.invoked.setdefault(_written(operation), []).append(pending)
            return
        if str(process) in self.pending:
            raise ValueError(
                f"process {process} begins an operation before the one of line "
                f"{self.pending[str(process)].line} has ended"
            )
        self.pending[str(process)] = pending

    def _complete(self, process: str | None, status: int, line: int, operation: dict[str, Any]) -> None:
        model, operations = _operations(operation, status)
        if not operations:
            return
        if model is not None:
            if self.model is not None and model != self.model:
                raise ValueError(f"operations of a {model} in a history of {self.model}s")
            self.model = self.loaded.history.model = model
        if process is None:
            self.nameless += 1
            process = f"#{self.nameless}"
        history = self.loaded.history
        if operation.get("f") in ("read", "write") and model == "register" and _is_group(operation.get("value")):
            history.snapshots = True
        history.add(process, status, line, operations)


def _operations(operation: dict[str, Any], status: int) -> tuple[Model | None, _Operations]:
    """Return what an operation does; the model is `None` where a read of nothing does not tell it."""
    f, value = operation.get("f"), operation.get("value")
    if f == "add":
        return "set", [Write("", _text(value))]
    if _is_group(value) and f not in ("cas", "transfer"):
        return _transaction(value, status)
    if f == "write":
        return "register", [Write("", _text(value))]
    if f == "read":
        if status != OK:
            return None, []
        if isinstance(value, list):
            return "set", [Read("", tuple(map(_text, value)))]
        if not isinstance(value, dict):
            return "register", [Read("", () if value is None else (_text(value),))]
    raise ValueError(f"an operation {f!r} on {str(value)[:40]!r} is not of a kind that is judged here")


def _is_group(value: Any) -> TypeGuard[list[list[Any]]]:
    return isinstance(value, list) and bool(value) and all(_is_step(step) for step in value)


def _is_step(step: Any) -> bool:
    return isinstance(step, list) and len(step) == 3 and step[0] in ("r", "w", "append")


def _transaction(value: Sequence[list[Any]], status: int) -> tuple[Model | None, _Operations]:
    operations: _Operations = []
    model: Model | None = None
    for kind, key, given in value:
        mine: Model | None = None
        if kind == "append":
            mine = "list"
            operations.append(Write(_text(key), _text(given)))
        elif kind == "w":
            mine = "register"
            operations.append(Write(_text(key), _text(given)))
        elif status == OK:
            if isinstance(given, list):
                mine = "list"
                operations.append(Read(_text(key), tuple(map(_text, given))))
            else:
                mine = None if given is None else "register"
                operations.append(Read(_text(key), () if given is None else (_text(given),)))
        if mine is not None and model not in (None, mine):
            raise ValueError(f"a {mine} and a {model} in one transaction")
        model = mine or model
    return model, operations


def _written(operation: dict[str, Any]) -> bytes:
    """Return what tells the invocation of an operation without a process: its writes and the keys that it reads."""
    value = operation.get("value")
    if _is_group(value):
        value = [step if step[0] != "r" else step[:2] for step in value]
    elif operation.get("f") == "read":
        value = None
    return _text([operation.get("f"), value]).encode()


def _text(value: Any) -> str:
    """Write a key or value so that equal ones, and only these, are written alike."""
    if isinstance(value, str):
        plain = value.isidentifier() and value not in ("null", "true", "false")
        return value if plain else json.dumps(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
