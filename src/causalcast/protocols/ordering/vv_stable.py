"""VV with causal stability: a matrix of what each member was heard to have.

Source: document 004, algorithms 6 (client) and 7 (middleware), sections 5.1.1 and 5.2. Keeps P1 to P6. Per message on
the wire: one count per member, or two. Per process: a matrix, and the messages that wait or are not stable.

Theory of operation. Row k of the matrix is the vector of the latest message delivered of member k, the own row what is
delivered here. The smallest count of a column is how many messages of its member all have: they are stable. For each
column the row of its smallest count is kept, so that it is looked at again only when that row has changed.

Departures from the print:

* The own row rises with every delivery, and may be the smallest of a column: that column is looked at too. The print
  (line 38) looks only where the sender's row was the smallest, and a member that never broadcasts gets stuck.
* The rows hold the applications' vectors, also where the middleware has its own: a member whose middleware has a
  message, untaken, may still broadcast what is concurrent with it.
* An idle member sends the vector of what it has taken as a phantom (as in section 5.4). It counts once all that its
  sender broadcast before it is delivered here; the latest one per member is kept until then.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.model import Delivered
from causalcast.protocols.ordering.cbcast import VectorMessage
from causalcast.protocols.ordering.idle import Idle
from causalcast.protocols.ordering.vv import VV, ClassicalVV, TwoVectorMessage
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import Event, Tag
    from causalcast.protocols.dissemination import Direct
    from causalcast.protocols.membership import StaticMembership
    from causalcast.protocols.port import Port, Timer

PHANTOM_TIMER: Final = "vv.phantom"


class VectorPhantom(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=6):
    """What an idle member has taken, in roster order; its own count is of what it has broadcast."""

    counts: tuple[int, ...]


class StableVV(VV):
    """End-to-end vectors, a delivery queue and a stability matrix for one process."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (VectorMessage, VectorPhantom)

    def __init__(self, port: Port, membership: StaticMembership, dissemination: Direct) -> None:
        super().__init__(port, membership, dissemination)
        size = len(self._roster)
        self._idle = Idle(port, PHANTOM_TIMER, size)
        self._matrix: list[Sequence[int]] = [(0,) * size] * size
        self._matrix[self._my_slot] = self._delivered
        self._lowest = [0] * size
        """For each column, a row of its smallest count."""
        self._stable = [0] * size
        self._unstable: dict[tuple[int, int], tuple[int, Tag]] = {}
        """The stable map of the document: slot and counter of what is delivered and not stable, its number, its tag."""
        self._deliveries = 0
        self._phantoms: dict[int, tuple[int, ...]] = {}

    def broadcast(self, payload: bytes) -> Tag:
        """As without stability; what was taken is spoken of."""
        self._idle.spoke()
        tag = super().broadcast(payload)
        self._delivered_one(self._my_slot, tag)
        return tag

    def take(self, event: Event) -> None:
        """The application receives `event`: its vector moves now."""
        super().take(event)
        if isinstance(event, Delivered):
            self._idle.took()

    def timer(self, timer: Timer) -> None:
        """Speak of what was taken, if no broadcast has done so meanwhile."""
        if self._idle.must_speak(timer):
            self._dissemination.broadcast(VectorPhantom(self._me, tuple(self._taken)))

    def receive(self, message: BroadcastMessage) -> None:
        """A message, or the phantom of another member."""
        if not isinstance(message, VectorPhantom):
            super().receive(message)
            return
        slot = self._check_vector(message.origin, message.counts)
        known = self._phantoms.get(slot)
        if known is None or sum(known) < sum(message.counts):
            self._phantoms[slot] = message.counts
            self._apply_phantom(slot)

    def _delivered_one(self, slot: int, tag: Tag) -> None:
        """Algorithm 7, updatestability."""
        self._deliveries += 1
        self._unstable[slot, tag.counter] = self._deliveries, tag
        self._update(slot, self._delivered if slot == self._my_slot else tag.counts)
        if slot in self._phantoms:
            self._apply_phantom(slot)

    def _apply_phantom(self, slot: int) -> None:
        counts = self._phantoms[slot]
        if counts[slot] <= self._delivered[slot]:
            # It may be older than what was heard since.
            self._update(slot, tuple(map(max, counts, self._matrix[slot])))
            del self._phantoms[slot]

    def _update(self, slot: int, row: Sequence[int]) -> None:
        """The row of `slot` is `row`, and of the own one the count of `slot` may have risen."""
        matrix, lowest, stable = self._matrix, self._lowest, self._stable
        matrix[slot] = row
        columns = [column for column, at in enumerate(lowest) if at == slot]
        if lowest[slot] == self._my_slot != slot:
            columns.append(slot)
        self._meter.count += len(lowest) * (1 + len(columns))
        dots: list[tuple[int, int]] = []
        for column in columns:
            counts = list(map(itemgetter(column), matrix))
            least = min(counts)
            lowest[column] = counts.index(least)
            dots.extend((column, counter) for counter in range(stable[column] + 1, least + 1))
            stable[column] = least
        # In order of delivery, which extends causal order.
        for _, tag in sorted((self._unstable.pop(dot) for dot in dots), key=_number):
            self._port.stable(tag)

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        return {**super().tables(), "unstable": len(self._unstable), "phantoms": len(self._phantoms)}

    @property
    def unstable(self) -> int:
        """Own messages not stable here yet."""
        return self._taken[self._my_slot] - self._stable[self._my_slot]

    def words(self) -> int:
        """With the matrix, and K(2 + N) for the stable map: a dot and the vectors of each message not stable."""
        size = len(self._roster)
        return super().words() + size * size + len(self._unstable) * (2 + self._vectors * size)

    def entries(self, message: BroadcastMessage) -> int:
        """The counts of its vectors; a phantom has one."""
        return len(message.counts) if isinstance(message, VectorPhantom) else super().entries(message)

    def describe(self) -> list[str]:
        """The matrix, a row per member, and the smallest counts (figure 23)."""
        rows = [f"{name} {list(row)}" for name, row in zip(self._roster.names, self._matrix, strict=True)]
        return [*rows, f"stable {self._stable}"]


class StableClassicalVV(StableVV, ClassicalVV):
    """Two vectors a message, and a stability matrix of the applications' ones, for one process."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (TwoVectorMessage, VectorPhantom)


def _number(delivery: tuple[int, Tag]) -> int:
    return delivery[0]
