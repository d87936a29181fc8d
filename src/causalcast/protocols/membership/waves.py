"""Waves: a message down a VCube tree, acknowledgements up again, and repair where a process on the way is suspected.

Source: document 002, section 5.5.3 (acks, algorithm 4); the repair, which section 6.2.2.1 leaves open, is ours. Who has
sent a message to the first member of a cluster waits for its acknowledgement, which says that everybody in that
cluster has it. If that member is suspected first, the message goes to the next one of the cluster, who then serves all
of it. Where nobody of a cluster is trusted, its members are sent the message and not waited for: a suspicion that was
wrong costs copies and never a message. A process that gets a message again, for more clusters than before, serves
those too. Each who sent it is acknowledged when the clusters it counts on have it, and no later: after a repair two
processes may each have sent the other the same wave. A wave ends here when nothing is waited for; nothing stays behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causalcast.model import ProcessId
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.port import Port, WireMessage

Key: TypeAlias = tuple[int, int, int, str]
"""What tells waves apart: a kind, the slot of the source, a number there, the topic that it belongs to."""


class Wave:
    """A message on its way through this process."""

    __slots__ = ("apart", "awaited", "found", "height", "key", "message", "missing", "parents", "unsent", "waiting")

    def __init__(self, key: Key, message: WireMessage) -> None:
        self.key = key
        self.message = message
        self.parents: list[int] = []
        """Who sent it, and is not acknowledged yet."""
        self.apart = False
        """Whether a parent counts on less than all its clusters, as after a repair: it may be acknowledged before."""
        self.height = 0
        """How many clusters of this process it is to reach."""
        self.awaited: dict[int, int] = {}
        """By cluster: whose acknowledgement is missing."""
        self.unsent: list[int] = []
        """Clusters for which this process does not know yet whom to send to."""
        self.missing = 0
        """The set of those who were sent it and are not waited for, here and below."""
        self.found: dict[int, int] | None = None
        """What acknowledgements have gathered, by slot."""
        self.waiting: dict[tuple[int, int], Any] | None = None
        """Messages that acknowledgements have gathered."""


class SentTally:
    """Copies sent, by kind of wave. No part of the protocol's state: pickles as empty."""

    __slots__ = ("by_kind",)

    def __init__(self) -> None:
        self.by_kind: dict[int, int] = {}

    def __reduce__(self) -> tuple[type[SentTally], tuple[()]]:
        return SentTally, ()

    def count(self, kind: int, copies: int) -> None:
        """So many copies are sent."""
        self.by_kind[kind] = self.by_kind.get(kind, 0) + copies


class Crew(Protocol):
    """Who a wave is for, and what happens at its end."""

    def audience(self, wave: Wave) -> int | None:
        """The set of those it must reach; `None`: not known yet, `Waves.resume` will say."""

    def firsts(self, wave: Wave) -> tuple[int, ...]:
        """For each cluster the first trusted member of the audience, or -1."""

    def trusted(self, wave: Wave) -> int:
        """The set of those who are waited for, in which `firsts` has looked."""

    def served(self, wave: Wave, parents: list[int]) -> None:
        """Everybody whom these parents count on this process for has it: acknowledge."""

    def ended(self, wave: Wave) -> None:
        """Everybody below has it. It is forgotten already."""


class Waves:
    """All waves that are on their way through one process."""

    __slots__ = ("_crew", "_membership", "_port", "_slot", "active", "sent")

    def __init__(self, port: Port, membership: VCube, crew: Crew) -> None:
        self._slot = membership.slot
        self._port = port
        self._membership = membership
        self._crew = crew
        self.active: dict[Key, Wave] = {}
        self.sent = SentTally()

    def spread(
        self,
        key: Key,
        message: WireMessage,
        parent: int | None,
        height: int,
        found: dict[int, int] | None = None,
        waiting: dict[tuple[int, int], Any] | None = None,
        missing: int = 0,
    ) -> None:
        """Bring a message to the first `height` clusters; `parent` sent it. The rest goes up with acks."""
        wave = self.active.get(key)
        if wave is None:
            wave = Wave(key, message)
            wave.found = found
            wave.waiting = waiting
            wave.missing = missing
            if not height and parent is not None:
                self._crew.served(wave, [parent])
                self._crew.ended(wave)
                return
            self.active[key] = wave
        if parent is not None and parent not in wave.parents:
            wave.parents.append(parent)
        if height > wave.height:
            clusters = range(wave.height + 1, height + 1)
            wave.height = height
            self._send(wave, clusters)
        parents = wave.parents
        if parents and (len(parents) > 1 or (self._slot ^ parents[0]).bit_length() <= wave.height):
            wave.apart = True
        if wave.apart or not wave.awaited:
            self._check(wave)

    def acknowledged(self, key: Key, child: int) -> Wave | None:
        """`child` says that its clusters have it. The wave that waited for it, to be told what else the child said
        before `settle` ends it; `None` if none did.
        """
        wave = self.active.get(key)
        if wave is None or wave.awaited.get((self._slot ^ child).bit_length()) != child:
            return None
        return wave

    def settled(self, key: Key, child: int) -> bool:
        """`child` says that its clusters have it, and nothing else; whether a wave waited for that."""
        wave = self.active.get(key)
        if wave is None:
            return False
        cluster = (self._slot ^ child).bit_length()
        if wave.awaited.get(cluster) != child:
            return False
        del wave.awaited[cluster]
        if wave.apart or not wave.awaited:
            self._check(wave)
        return True

    def settle(self, wave: Wave, child: int) -> None:
        """No longer wait for `child`."""
        del wave.awaited[(self._slot ^ child).bit_length()]
        if wave.apart or not wave.awaited:
            self._check(wave)

    def again(self, wave: Wave, child: int) -> None:
        """`child` will not serve its cluster: send to the next."""
        cluster = self._membership.cluster(child)
        del wave.awaited[cluster]
        self._send(wave, (cluster,))
        self._check(wave)

    def resume(self, topic: str) -> None:
        """The audience of the topic's waves is known now."""
        for wave in [wave for wave in self.active.values() if wave.key[3] == topic and wave.unsent]:
            clusters, wave.unsent = wave.unsent, []
            self._send(wave, clusters)
            self._check(wave)

    def suspected(self, peer: int) -> None:
        """Wait for `peer` no longer, anywhere."""
        cluster = self._membership.cluster(peer)
        for wave in [wave for wave in self.active.values() if wave.awaited.get(cluster) == peer]:
            self.again(wave, peer)

    def of_topic(self, topic: str) -> bool:
        """Whether a wave of the topic is on its way here."""
        return any(wave.key[3] == topic for wave in self.active.values())

    def _send(self, wave: Wave, clusters: Iterable[int]) -> None:
        membership = self._membership
        audience = self._crew.audience(wave)
        if audience is None:
            wave.unsent.extend(clusters)
            return
        firsts = self._crew.firsts(wave)
        names = membership.roster.names
        destinations: list[ProcessId] = []
        for s in clusters:
            child = firsts[s - 1]
            if child >= 0:
                wave.awaited[s] = child
                destinations.append(names[child])
                continue
            lost = audience & ~self._crew.trusted(wave) & membership.block(s)
            if lost:
                wave.missing |= lost
                destinations.extend(names[slot] for slot in members_of(lost))
        if destinations:
            self.sent.count(wave.key[0], len(destinations))
            self._port.send(destinations, wave.message)

    def _check(self, wave: Wave) -> None:
        if not wave.awaited and not wave.unsent:
            if self.active.pop(wave.key, None) is None:
                return
            parents, wave.parents = wave.parents, []
            if parents:
                self._crew.served(wave, parents)
            self._crew.ended(wave)
        elif wave.apart and wave.parents:
            # A parent waits for the clusters below its own and no others: two who serve each other may both wait.
            lowest = min((*wave.awaited, *wave.unsent))
            parents = [parent for parent in wave.parents if self._membership.cluster(parent) <= lowest]
            if parents:
                wave.parents = [parent for parent in wave.parents if parent not in parents]
                self._crew.served(wave, parents)


def members_of(members: int) -> list[int]:
    """The numbers in a set, in order."""
    found = []
    while members:
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return found
