"""The asyncio host: a member of a group on real TCP. `docs/runtime.md` tells how it works.

From the bottom: `frames` (bytes), `link` (one peer, reliable and in order, no input or output), `connection` (one TCP
connection), `mesh` (all links of a process), `session`, `sessions` and `book` (links that come and go, and who listens
where), `journal` and `recovery` (what a process that was killed comes back with), `host`, `dynamic_host` and
`session_host` (run the protocol), `group` and `opening` (what an application uses).
"""

from causalcast.runtime.address import InvalidAddressError
from causalcast.runtime.endpoint import LinkState
from causalcast.runtime.group import Group
from causalcast.runtime.joining import JoinError
from causalcast.runtime.journal import Durability, JournalError
from causalcast.runtime.opening import open
from causalcast.runtime.status import Status
from causalcast.runtime.tls import Tls, TlsError
from causalcast.runtime.topic import Topic

__all__ = [
    "Durability",
    "Group",
    "InvalidAddressError",
    "JoinError",
    "JournalError",
    "LinkState",
    "Status",
    "Tls",
    "TlsError",
    "Topic",
    "open",
]
