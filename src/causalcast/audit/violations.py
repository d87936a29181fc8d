"""What a replay finds, as columns: kinds, reasons, and the result of one process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from causalcast.audit.metrics import Histogram
from causalcast.audit.timeline import ProcessTimeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from causalcast.audit.result import FindingKind

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

KINDS: Final[tuple[FindingKind, ...]] = (
    "causal-order",
    "fifo-order",
    "missing-cause",
    "undelivered",
    "duplicate",
    "not-broadcast",
    "altered",
    "stable-order",
    "unstable",
    "tag-mismatch",
    "reused-identifier",
    "absent-log",
)
PROPERTY: Final[dict[FindingKind, str]] = {
    "causal-order": "P3",
    "fifo-order": "P3",
    "missing-cause": "P3",
    "undelivered": "P2",
    "duplicate": "P1",
    "not-broadcast": "P1",
    "altered": "P1",
    "stable-order": "P5",
    "unstable": "P6",
    "tag-mismatch": "P4",
    "reused-identifier": "P1",
    "absent-log": "trace",
}
"""The property that a kind violates; `trace` for what is wrong with the logs and not with the system."""
CODE: Final = {kind: code for code, kind in enumerate(KINDS)}

NO_REASON: Final = 0
EARLY_DELIVERY: Final = 1
TWICE_STABLE: Final = 2
STABLE_UNDELIVERED: Final = 3
STABLE_BEFORE_DELIVERY: Final = 4
STABLE_OUT_OF_ORDER: Final = 5
STABLE_SKIPPED: Final = 6
CONCURRENT_AFTER_STABLE: Final = 7
TAG_OVER: Final = 8
TAG_UNDER: Final = 9
TAG_UNKNOWN: Final = 10

_CONCLUSIVE: Final = frozenset(
    {
        *((CODE[kind], NO_REASON) for kind in ("causal-order", "fifo-order", "duplicate", "altered")),
        *((CODE["tag-mismatch"], reason) for reason in (TAG_OVER, TAG_UNDER)),
        *((CODE["stable-order"], reason) for reason in (TWICE_STABLE, STABLE_BEFORE_DELIVERY, STABLE_OUT_OF_ORDER)),
        (CODE["not-broadcast"], EARLY_DELIVERY),
    }
)


@dataclass(frozen=True, slots=True)
class Violations:
    """Violations of one kind in one topic, as columns of equal length.

    `message` and `cause` are rows of the topic's clock (-1: none); a phantom has -1 and its `origin` (index
    into the names of its `Replay`) and `counter`. `at` and `cause_at` are rows of the process's log (0: none).
    """

    topic: str
    kind: int
    reason: int
    message: Ints
    cause: Ints
    at: Ints
    cause_at: Ints
    root: Bools
    origin: Ints | None = None
    counter: Ints | None = None
    because: Ints | None = None
    """The absent message of the same kind in the past of each, -1 for roots; `None` where the cause tells."""

    def __len__(self) -> int:
        return int(self.message.size)

    @property
    def conclusive(self) -> bool:
        """Whether no row to come changes them once each of their messages was delivered by all whom it concerns."""
        return (self.kind, self.reason) in _CONCLUSIVE and self.origin is None

    def those(self, chosen: Bools) -> Violations:
        """Return some of them."""
        columns = ("message", "cause", "at", "cause_at", "root", "origin", "counter", "because")
        values = ((name, getattr(self, name)) for name in columns)
        return replace(self, **{name: value[chosen] for name, value in values if value is not None})

    def named(self) -> tuple[Ints, ...]:
        """Return the messages that are named, -1 for none."""
        return (self.message, self.cause) if self.because is None else (self.message, self.cause, self.because)


@dataclass(slots=True)
class Replay:
    """What the replay of one process found and measured."""

    process: str
    names: Sequence[str]
    """Those that its body had when it was replayed; the origins of phantoms are indices into them."""
    violations: list[Violations] = field(default_factory=list)
    latency: Histogram = field(default_factory=Histogram)
    stability_delay: Histogram = field(default_factory=Histogram)
    timeline: ProcessTimeline = field(default_factory=ProcessTimeline)
    excused: int = 0
    """Messages that it never delivered and was not entitled to, less all messages of the topics it was judged in."""
    unproven: int = 0
    """Messages that it never delivered as far as its log shows, which has holes."""
