"""The asyncio host: a member of a group on real TCP. `docs/runtime.md` tells how it works.

From the bottom: `frames` (bytes), `link` (one peer, reliable and in order, no input or output), `connection` (one TCP
connection), `mesh` (all links of a process), `journal` and `recovery` (what a process that was killed comes back with),
`host` (runs the protocol), `group` (what an application uses).
"""

from causalcast.runtime.address import InvalidAddressError
from causalcast.runtime.group import Group, open
from causalcast.runtime.journal import Durability, JournalError
from causalcast.runtime.mesh import LinkState
from causalcast.runtime.tls import Tls, TlsError
from causalcast.runtime.topic import Topic

__all__ = [
    "Durability",
    "Group",
    "InvalidAddressError",
    "JournalError",
    "LinkState",
    "Tls",
    "TlsError",
    "Topic",
    "open",
]
