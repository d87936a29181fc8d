"""The failure detector of fixed members, for stacks that go on without those who crash.

A peer of whom nothing was heard for `SUSPECT_S` is taken for crashed: a link that has nothing to say says so every
`HEARTBEAT_S`, and one that breaks is dialled again at once. Whoever is heard of again was not: the process is told that
too. A peer that was never there is no suspect, for a group that is being started waits for all.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from causalcast.runtime.limits import DETECTIONS, SUSPECT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from causalcast.model import ProcessId

logger = logging.getLogger("causalcast")


class Detector:
    """Looks at the silence of all peers."""

    def __init__(self, name: ProcessId, heard: Callable[[], Iterable[tuple[ProcessId, float]]]) -> None:
        """`heard` tells of each peer that was there once, and has not left, when something was heard of it last."""
        self.silent: set[ProcessId] = set()
        """Those taken for crashed."""
        self._name = name
        self._heard = heard
        self._ticking: asyncio.TimerHandle | None = None
        self._last = 0.0
        self._from = 0.0
        """Silence before counts for nothing: this process itself was stopped or busy."""

    def start(self, changed: Callable[[ProcessId], None]) -> None:
        """Call `changed` for each peer that becomes silent, or is no longer."""
        loop = asyncio.get_running_loop()
        step = SUSPECT_S / DETECTIONS
        self._ticking = loop.call_later(step, self.start, changed)
        now = loop.time()
        if now - self._last > 2 * step:
            self._from = now
        self._last = now
        for peer, heard in self._heard():
            silence = now - max(heard, self._from)
            if silence > SUSPECT_S and peer not in self.silent:
                self.silent.add(peer)
                logger.warning(
                    "%s: nothing was heard of %s for %.1f s: it seems to have crashed", self._name, peer, silence
                )
                changed(peer)
            elif peer in self.silent and now - heard <= SUSPECT_S:
                self.silent.discard(peer)
                logger.warning("%s: %s has not crashed", self._name, peer)
                changed(peer)

    def stop(self) -> None:
        """Look no more."""
        if self._ticking is not None:
            self._ticking.cancel()
