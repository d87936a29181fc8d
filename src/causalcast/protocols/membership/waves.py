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
    from collections.abc import Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.port import Port, WireMessage

Key: TypeAlias = tuple[int, int, int, str]
"""What tells waves apart: a kind, the slot of the source, a number there, the topic that it belongs to."""


class Wave:
    """A message on its way through this process."""

    __slots__ = (
        "apart",
        "awaited",
        "children",
        "found",
        "height",
        "key",
        "message",
        "missing",
        "parents",
        "unsent",
        "waiting",
    )

    def __init__(self, key: Key, message: WireMessage) -> None:
        self.key = key
        self.message = message
        self.parents: tuple[int, ...] = ()
        """Who sent it, and is not acknowledged yet."""
        self.apart = False
        """Whether a parent counts on less than all its clusters, as after a repair: it may be acknowledged before."""
        self.height = 0
        """How many clusters of this process it is to reach."""
        self.awaited = 0
        """The set of clusters, counted from 1, whose acknowledgement is missing."""
        self.children: tuple[int, ...] = ()
        """Of these clusters, in the place before their number: who serves them. Waves sent alike share it."""
        self.unsent: tuple[int, ...] = ()
        """Clusters for which this process does not know yet whom to send to."""
        self.missing = 0
        """The set of those who were sent it and are not waited for, here and below."""
        self.found: dict[int, int] | None = None
        """What acknowledgements have gathered, by slot."""
        self.waiting: dict[tuple[int, int], Any] | None = None
        """Messages that acknowledgements have gathered."""

    def waits_for(self, cluster: int, child: int) -> bool:
        """Whether the acknowledgement of this child for this cluster is missing."""
        return bool(self.awaited >> cluster & 1) and self.children[cluster - 1] == child

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Without the children that nothing is expected of any more: they are no part of its state."""
        state: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        places = range(1, self.awaited.bit_length())
        state["children"] = tuple([self.children[s - 1] if self.awaited >> s & 1 else -1 for s in places])
        return None, state


class Fans:
    """Whom waves go to, by height, as last worked out. Follows from the rest of the state: pickles as empty."""

    __slots__ = ("by_height",)

    def __init__(self) -> None:
        self.by_height: dict[int, tuple[tuple[int, ...], int, tuple[ProcessId, ...]]] = {}
        """The first members of clusters, the set of clusters sent to, and the names of who is sent to there."""

    def __reduce__(self) -> tuple[type[Fans], tuple[()]]:
        return Fans, ()


class SentTally:
    """Copies sent, by kind of wave. No part of the protocol's state: pickles as empty."""

    __slots__ = ("by_kind",)

    def __init__(self) -> None:
        self.by_kind: dict[int, int] = {}

    def __reduce__(self) -> tuple[type[SentTally], tuple[()]]:
        return SentTally, ()


class Crew(Protocol):
    """Who a wave is for, and what happens at its end."""

    def audience(self, wave: Wave) -> int:
        """The set of those it must reach, once `firsts` says so."""

    def firsts(self, wave: Wave) -> tuple[int, ...] | None:
        """For each cluster the first trusted member of the audience, or -1: the same object for as long as neither
        changes. `None`: the audience is not known yet, `Waves.resume` will say.
        """

    def trusted(self, wave: Wave) -> int:
        """The set of those who are waited for, in which `firsts` has looked."""

    def served(self, wave: Wave, parents: tuple[int, ...]) -> None:
        """Everybody whom these parents count on this process for has it: acknowledge."""

    def ended(self, wave: Wave) -> None:
        """Everybody below has it. It is forgotten already."""


class Waves:
    """All waves that are on their way through one process."""

    __slots__ = ("_crew", "_fans", "_membership", "_port", "_slot", "active", "sent")

    def __init__(self, port: Port, membership: VCube, crew: Crew) -> None:
        self._slot = membership.slot
        self._port = port
        self._membership = membership
        self._crew = crew
        self.active: dict[Key, Wave] = {}
        self.sent = SentTally()
        self._fans = Fans()

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
                self._crew.served(wave, (parent,))
                self._crew.ended(wave)
                return
            self.active[key] = wave
        if parent is not None and parent not in wave.parents:
            wave.parents = (*wave.parents, parent)
        if height > wave.height:
            lowest, wave.height = wave.height + 1, height
            if lowest > 1 or not self._fan_out(wave, height):
                self._send(wave, range(lowest, height + 1))
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
        if wave is None or not wave.waits_for((self._slot ^ child).bit_length(), child):
            return None
        return wave

    def settled(self, key: Key, child: int) -> bool:
        """`child` says that its clusters have it, and nothing else; whether a wave waited for that."""
        wave = self.active.get(key)
        if wave is None:
            return False
        cluster = (self._slot ^ child).bit_length()
        awaited = wave.awaited
        if not awaited >> cluster & 1 or wave.children[cluster - 1] != child:
            return False
        wave.awaited = awaited ^ 1 << cluster
        if wave.apart or not wave.awaited:
            self._check(wave)
        return True

    def settle(self, wave: Wave, child: int) -> None:
        """No longer wait for `child`."""
        wave.awaited ^= 1 << (self._slot ^ child).bit_length()
        if wave.apart or not wave.awaited:
            self._check(wave)

    def again(self, wave: Wave, child: int) -> None:
        """`child` will not serve its cluster: send to the next."""
        cluster = self._membership.cluster(child)
        wave.awaited ^= 1 << cluster
        self._send(wave, (cluster,))
        self._check(wave)

    def resume(self, topic: str) -> None:
        """The audience of the topic's waves is known now."""
        for wave in [wave for wave in self.active.values() if wave.key[3] == topic and wave.unsent]:
            clusters, wave.unsent = wave.unsent, ()
            self._send(wave, clusters)
            self._check(wave)

    def suspected(self, peer: int) -> None:
        """Wait for `peer` no longer, anywhere."""
        cluster = self._membership.cluster(peer)
        for wave in [wave for wave in self.active.values() if wave.waits_for(cluster, peer)]:
            self.again(wave, peer)

    def of_topic(self, topic: str) -> bool:
        """Whether a wave of the topic is on its way here."""
        return any(wave.key[3] == topic for wave in self.active.values())

    def _fan_out(self, wave: Wave, height: int) -> bool:
        """Send to the first `height` clusters what was sent to none yet, as the last one of this height; `False` if
        that was not for the same members.
        """
        fan = self._fans.by_height.get(height)
        if fan is None:
            return False
        children, wave_to, destinations = fan
        if self._crew.firsts(wave) is not children:
            return False
        wave.children = children
        wave.awaited = wave_to
        if destinations:
            self._put(wave, destinations)
        return True

    def _send(self, wave: Wave, clusters: Sequence[int]) -> None:
        firsts = self._crew.firsts(wave)
        if firsts is None:
            wave.unsent = (*wave.unsent, *clusters)
            return
        membership = self._membership
        names = membership.roster.names
        destinations: list[ProcessId] = []
        awaited, missing = wave.awaited, 0
        for s in clusters:
            child = firsts[s - 1]
            if child >= 0:
                awaited |= 1 << s
                destinations.append(names[child])
                continue
            lost = self._crew.audience(wave) & ~self._crew.trusted(wave) & membership.block(s)
            if lost:
                missing |= lost
                destinations.extend(names[slot] for slot in members_of(lost))
        if not wave.awaited:
            wave.children = firsts
            if not missing and len(clusters) == wave.height:
                self._fans.by_height[wave.height] = firsts, awaited, tuple(destinations)
        elif firsts is not wave.children:
            places = enumerate(zip(firsts, wave.children, strict=True), start=1)
            wave.children = tuple([new if s in clusters else old for s, (new, old) in places])
        wave.awaited = awaited
        wave.missing |= missing
        if destinations:
            self._put(wave, destinations)

    def _put(self, wave: Wave, destinations: Sequence[ProcessId]) -> None:
        kind, by_kind = wave.key[0], self.sent.by_kind
        by_kind[kind] = by_kind.get(kind, 0) + len(destinations)
        self._port.send(destinations, wave.message)

    def _check(self, wave: Wave) -> None:
        if not wave.awaited and not wave.unsent:
            if self.active.pop(wave.key, None) is None:
                return
            parents, wave.parents = wave.parents, ()
            if parents:
                self._crew.served(wave, parents)
            self._crew.ended(wave)
        elif wave.apart and wave.parents:
            # A parent waits for the clusters below its own and no others: two who serve each other may both wait.
            lowest = min((*members_of(wave.awaited), *wave.unsent))
            parents = tuple([parent for parent in wave.parents if self._membership.cluster(parent) <= lowest])
            if parents:
                wave.parents = tuple([parent for parent in wave.parents if parent not in parents])
                self._crew.served(wave, parents)


def members_of(members: int) -> list[int]:
    """The numbers in a set, in order."""
    found = []
    while members:
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return found
