"""`causalcast`, to whom a silence of one and a half seconds is a crash: five seconds are long to wait for in a test."""

from __future__ import annotations

from causalcast.cli import main
from causalcast.runtime import endpoint, suspicion

if __name__ == "__main__":
    vars(suspicion)["SUSPECT_S"] = 1.5
    vars(endpoint)["HEARTBEAT_S"] = 0.3
    main()
