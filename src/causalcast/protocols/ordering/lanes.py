"""Vectors of counts packed into one integer each, compared and joined in a few operations whatever their length.

Each count has a lane of `width` bits, in the order of the machine's bytes. The top bit of a lane, its guard, is free:
subtracting one vector from another that has all guards set borrows nowhere beyond a lane, and leaves a guard set where
the minuend was not the smaller. Lanes begin with 8 bits; their owner repacks into twice the width when a count reaches
`limit`.

Source of the technique: Knuth, The Art of Computer Programming, volume 4A, section 7.1.3, multibyte processing.
"""

from __future__ import annotations

import struct
from sys import byteorder
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from causalcast.protocols.ordering.meter import Meter

_FORMATS: Final = {8: "B", 16: "H", 32: "I", 64: "Q"}


class Lanes:
    """How vectors of `size` counts are packed: counts must be below `limit`."""

    __slots__ = (
        "_bytes",
        "_head",
        "_pack",
        "_unpack",
        "guard",
        "limit",
        "mask",
        "shifts",
        "size",
        "units",
        "width",
        "words",
    )

    def __init__(self, size: int, width: int = 8) -> None:
        self.size = size
        self.width = width
        self.limit = 1 << (width - 1)
        self.guard = sum(self.limit << (width * place) for place in range(size))
        """The top bit of every lane."""
        places = range(size) if byteorder == "little" else range(size - 1, -1, -1)
        self.shifts = tuple(width * place for place in places)
        """Where the lane of each count begins."""
        self.mask = 2 * self.limit - 1
        """A whole lane at the lowest place."""
        self.units = tuple(1 << shift for shift in self.shifts)
        """For each count, what makes it larger by one."""
        self.words = -(-size * width // 64)
        """64-bit words of a packed vector."""
        self._bytes = size * width // 8
        layout = struct.Struct(f"={size}{_FORMATS[width]}")
        self._pack: Callable[..., bytes] = layout.pack
        self._unpack: Callable[[bytes], tuple[int, ...]] = layout.unpack
        self._head: Callable[[bytes], tuple[int, ...]] = struct.Struct(f"={size // 2}{_FORMATS[width]}").unpack_from

    def __reduce__(self) -> tuple[type[Lanes], tuple[int, int]]:
        return Lanes, (self.size, self.width)

    def wider(self) -> Lanes:
        """Lanes for larger counts."""
        return Lanes(self.size, 2 * self.width)

    def pack(self, counts: Iterable[int]) -> int:
        """The counts as one integer."""
        return int.from_bytes(self._pack(*counts), byteorder)

    def unpack(self, vector: int) -> tuple[int, ...]:
        """The counts of a packed vector."""
        return self._unpack(vector.to_bytes(self._bytes, byteorder))

    def head(self, vector: int) -> tuple[int, ...]:
        """The counts of the first half."""
        return self._head(vector.to_bytes(self._bytes, byteorder))

    def join(self, vector: int, others: Iterable[int]) -> int:
        """In each lane the largest count of all."""
        guard, shift = self.guard, self.width - 1
        raised = vector | guard
        for other in others:
            larger = (raised - other) & guard
            if larger != guard:
                mask = larger - (larger >> shift)
                vector = other ^ ((vector ^ other) & mask)
                raised = vector | guard
        return vector

    def meet(self, one: int, other: int) -> int:
        """In each lane the smaller count."""
        larger = ((one | self.guard) - other) & self.guard
        return one ^ ((one ^ other) & (larger - (larger >> (self.width - 1))))


class Minima:
    """In each lane the smallest count of some vectors, kept up as they change (a tournament of log2 n rounds)."""

    __slots__ = ("_first", "_lanes", "_meter", "_tree")

    def __init__(self, lanes: Lanes, vectors: Mapping[int, int], meter: Meter) -> None:
        """`vectors` by slot; other slots take no part."""
        first = 1 << (lanes.size - 1).bit_length()
        nobody = lanes.guard - (lanes.guard >> (lanes.width - 1))
        tree = [nobody] * first + [vectors.get(slot, nobody) for slot in range(first)]
        for place in range(first - 1, 0, -1):
            tree[place] = lanes.meet(tree[2 * place], tree[2 * place + 1])
        self._first = first
        self._lanes = lanes
        self._meter = meter
        self._tree = tree

    def put(self, slot: int, vector: int) -> bool:
        """Change one vector; returns whether that changed the smallest counts."""
        tree, meet = self._tree, self._lanes.meet
        place = self._first + slot
        tree[place] = vector
        while place > 1:
            place >>= 1
            self._meter.count += 2 * self._lanes.words
            low = meet(tree[2 * place], tree[2 * place + 1])
            if low == tree[place]:
                return False
            tree[place] = low
        return True

    def rise(self, slot: int, vector: int, column: int, count: int) -> bool:
        """As `put`, where the vector of `slot` is the one before with one more in `column`, which makes it `count`."""
        tree, lanes = self._tree, self._lanes
        shift, mask, unit = lanes.shifts[column], lanes.mask, lanes.units[column]
        place = self._first + slot
        tree[place] = vector
        while place > 1:
            self._meter.count += 2 * lanes.words
            if tree[place ^ 1] >> shift & mask < count:
                return False
            place >>= 1
            # In this lane the smaller of both was that one.
            tree[place] += unit
        return True

    def replace(self, slot: int, vector: int) -> None:
        """As `put`, of a vector that changes in no lane in which it is among the smallest."""
        self._tree[self._first + slot] = vector

    def beside(self, slot: int, column: int) -> int:
        """A count of the vector that `slot` is compared with first: above it, that of `slot` changes nothing else."""
        lanes = self._lanes
        return self._tree[self._first + slot ^ 1] >> lanes.shifts[column] & lanes.mask

    def of(self, slot: int) -> int:
        """The vector of a slot."""
        return self._tree[self._first + slot]

    @property
    def lowest(self) -> int:
        """The smallest counts."""
        return self._tree[1]
