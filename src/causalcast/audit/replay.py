"""One process's log judged against the clock: the *replay* stage, pure NumPy, one topic after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.entitlement import entitle
from causalcast.audit.integrity import check_payloads, place_deliveries
from causalcast.audit.members import Attendance
from causalcast.audit.order import check_order, check_undelivered
from causalcast.audit.stability import check_stability
from causalcast.audit.tags import check_tags
from causalcast.audit.view import View
from causalcast.audit.violations import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.audit.clocks import Clock
    from causalcast.audit.logs import LogBody, Mark


def replay(body: LogBody, marks: Sequence[Mark], clock: Clock, inspect: Callable[[View], None] | None = None) -> Replay:
    """Judge one process in every topic of the clock; `inspect` is shown each topic when it is judged."""
    result = Replay(body.process)
    attendance = Attendance(body.process, marks, clock.subscriptions)
    for name in sorted(body.topics.keys() | (set(attendance.topics(clock.topics)) & clock.topics.keys())):
        topic = clock.topics[name]
        result.excused -= topic.messages
        view = View(body, attendance, clock, topic, body.topics.get(name), result)
        _replay_topic(view)
        if inspect is not None:
            inspect(view)
    if body.links is not None:
        result.timeline.add_links(clock.grid, body.links)
    return result


def _replay_topic(view: View) -> None:
    """Run the checks; each adds to the result."""
    if view.log is not None:
        place_deliveries(view, view.log)
    if view.position.size and int(view.position.max()) < 2**31:
        view.position = view.position.astype(np.int32)
    entitle(view)
    check_order(view, view.position, stable=False)
    check_undelivered(view)
    if view.log is not None:
        check_payloads(view, view.log)
        check_tags(view, view.log)
    if view.topic.stability:
        check_stability(view)
