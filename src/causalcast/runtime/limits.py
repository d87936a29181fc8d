"""Every bound of the runtime, by name."""

from __future__ import annotations

from typing import Final

FRAME_LIMIT: Final = 16 * 2**20
"""Default for the largest body of a frame, in bytes; the same at every member of a group."""

HELLO_LIMIT: Final = 4096
"""Largest body of a first frame: a stranger can make us hold no more than this."""

REASON_LIMIT: Final = 1024
"""Bytes of the reason that a close frame carries; longer ones are cut."""

RESEND_FRAMES: Final = 65_536
"""Frames that one peer has not acknowledged; at this number `broadcast` waits."""

RESEND_BYTES: Final = 64 * 2**20
"""Bytes that one peer has not acknowledged; at this number `broadcast` waits. One frame may go beyond."""

UNSTABLE_MESSAGES: Final = 65_536
"""Own messages that are not stable yet; at this number `broadcast` waits."""

QUEUED_EVENTS: Final = 16_384
"""Events that the application has not taken; at this number nothing more is read from any link."""

PENDING_MESSAGES: Final = 16_384
"""Messages of one peer that wait for a cause; at this number nothing more is read from that peer's link."""

ACK_FRAMES: Final = 512
"""Frames received that are acknowledged without delay."""

ACK_BYTES: Final = 2**20
"""Bytes received that are acknowledged without delay."""

ACK_DELAY_S: Final = 0.02
"""How long fewer frames and bytes may wait for their acknowledgement, unless data carries it earlier."""

WRITE_CHUNK: Final = 128 * 1024
"""Bytes handed to a transport at once; also its high-water mark. Whatever is beyond stays in the link's own buffer."""

READ_CHUNK: Final = 64 * 1024
"""Bytes taken from a connection at once. With many more the application comes to events that no cache holds any more.
"""

EVENTS_AT_ONCE: Final = 64
"""Events the application takes, or messages it broadcasts, before it is asked how long that took."""

TURN_S: Final = 0.001
"""If they took so long, with all before them, the event loop gets a turn."""

HEARTBEAT_S: Final = 2.0
"""How often a link that has nothing to say says that it is there."""

SILENCE_S: Final = 10.0
"""A peer not heard of for so long is taken for dead: the connection is closed and dialled again."""

HANDSHAKE_S: Final = 5.0
"""How long a new connection may take to say who it is, and a dialled one to be answered."""

STRANGERS: Final = 64
"""Accepted connections that have not said who they are; one more closes the oldest."""

REDIAL_FIRST_S: Final = 0.05
"""Mean wait before the first attempt to dial again; it doubles with every attempt that fails."""

REDIAL_MOST_S: Final = 2.0
"""Longest mean wait between attempts."""

LINGER_S: Final = 5.0
"""How long `close` waits for the peers to acknowledge."""

SESSIONS: Final = 1_024
"""Connections of session links, and links of members that come and go; beyond, nobody new is let in or dialled."""

SESSION_ROOM: Final = 8 * 2**20
"""Bytes that wait to be written to one session; at this number `broadcast` waits."""

SESSION_BYTES: Final = 64 * 2**20
"""Bytes that wait to be written to one session; beyond, the peer is taken for dead and the session ends."""

CONNECT_TRIES: Final = 3
"""Attempts to reach a peer before its session link counts as down."""

PARTING_S: Final = 5.0
"""How long the other side of a session that has ended here may take to have read its end."""

JOIN_S: Final = 10.0
"""How long a joiner tries to reach a contact, and how long the group may then take to let it in; a state that is still
coming in has as long again.
"""

LONG_MESSAGE_BYTES: Final = 256 * 2**20
"""Where members come and go: size of a message that takes several frames, such as a state for a joiner; no more is
sent, or kept until its end has come.
"""

LET_GO_S: Final = 5.0
"""How long the link to a member that has left or was evicted is kept, for what it has still to be told."""

EVICT_AFTER_LEAST_S: Final = 2 * HEARTBEAT_S
"""The shortest silence after which members may be evicted: a member that is well says something every `HEARTBEAT_S`."""

SUSPECT_S: Final = 5.0
"""A fixed member that was there and was not heard of for so long is taken for crashed, where the stack goes on without
it; that is taken back when it is heard of again.
"""

DETECTIONS: Final = 8
"""How often a failure detector looks within the silence that it waits for."""

BOOK_ENTRIES: Final = 4_096
"""Names in an address book; the least recently used go first."""

BOOK_CHUNK: Final = 8
"""Entries of an address book in one frame."""

TOLD_NAMES: Final = 4_096
"""Names that are remembered to have been told on a session; beyond, they are told again."""

JOURNAL_INPUTS: Final = 32_768
"""Inputs in a journal, takes apart, after which a snapshot takes their place, if that is not larger than they are."""

JOURNAL_BYTES: Final = 16 * 2**20
"""The same in bytes."""

TAIL_BYTES: Final = 2**20
"""Size of the file beside a journal that inputs are written to first: when it is full they move into the journal, and a
machine that stops may lose so many bytes of inputs where not every message is waited for.
"""

TRACE_FLUSH_S: Final = 0.2
"""How often the trace is flushed."""

STALL_WARNING_S: Final = 10.0
"""A broadcast that has waited for so long is logged, with what it waits for."""
