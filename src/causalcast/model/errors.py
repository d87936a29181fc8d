"""Every error that causalcast raises on purpose; each carries the offending value and says what to do."""

from __future__ import annotations


class CausalcastError(Exception):
    """Base of all errors raised by causalcast."""


class InvalidNameError(CausalcastError, ValueError):
    """A process or group name that cannot be used."""


class NotAMemberError(CausalcastError, ValueError):
    """A name that is not in the group's roster."""


class PayloadTooLargeError(CausalcastError, ValueError):
    """A payload that no frame of this group can carry; nothing was sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"a payload of {size:,} bytes exceeds the limit of {limit:,} bytes; "
            "split it, or raise frame_limit at every member"
        )
        self.size = size
        self.limit = limit


class GroupClosedError(CausalcastError, RuntimeError):
    """The group was closed here; open it again to broadcast."""


class ProtocolViolationError(CausalcastError):
    """A peer sent what no correct peer sends. The host closes that link with this reason; nothing else changes."""


class IncomparableTagsError(CausalcastError, TypeError):
    """Two tags of groups with different members have no common happens-before to compare by."""


class UnknownStackError(CausalcastError, KeyError):
    """No stack of that name is registered."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return f"no stack is called {self.name!r}; choose one of {', '.join(self.known)}"


class UnsupportedByStackError(CausalcastError, RuntimeError):
    """The stack cannot do what was asked of it; `causalcast stacks` says which can."""


class StateTransferError(CausalcastError, RuntimeError):
    """The application's state could not be given to a new member."""


class TopicError(CausalcastError, ValueError):
    """A topic that cannot be: its name, or one too many."""


class SnapshotError(CausalcastError, ValueError):
    """Bytes that no process of the stack wrote down; nothing can be recovered from them."""
