"""Coverage-guided fuzzing of what a member reads from the network: handshake, decoder, processes (see `__main__`)."""

from typing import Final

TARGETS: Final = {"fixed": "tcb", "moving": "tcb-dynamic", "topics": "vcube-ps", "overlay": "cptcast"}
"""What can be fuzzed, and by which stack. Here, where nothing of causalcast is imported: that must be instrumented."""
