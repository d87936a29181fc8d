"""What a replay rests on, as a key: equal keys have equal replays."""

from __future__ import annotations

import pickle
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from causalcast.audit.members import Attendance

if TYPE_CHECKING:
    from causalcast.audit.clocks import Clock
    from causalcast.audit.digests import LogIndex


class ReplayKeys:
    """Makes the keys of one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics = {name: _fingerprint(topic) for name, topic in clock.topics.items()}
        self._every = _fingerprint(sorted(self._topics.items()))
        self._general = _fingerprint((clock.subscriptions, clock.grid.start, clock.grid.width))

    def key(self, digest: str, log: LogIndex) -> str:
        """Return the key of one process: of its digest, its membership, and the clocks of the topics it is in."""
        topics = self._every
        if self._clock.subscriptions:
            attendance = Attendance(log.process, log.marks, self._clock.subscriptions)
            mine = (log.topics.keys() | set(attendance.topics(self._topics))) & self._topics.keys()
            topics = _fingerprint([(name, self._topics[name]) for name in sorted(mine)])
        return _fingerprint((digest, self._general, self._clock.members[log.process], topics)).hex()


def _fingerprint(value: Any) -> bytes:
    buffers: list[pickle.PickleBuffer] = []
    digest = blake2b(pickle.dumps(value, protocol=5, buffer_callback=buffers.append), digest_size=16)
    for buffer in buffers:
        digest.update(buffer.raw())
    return digest.digest()
