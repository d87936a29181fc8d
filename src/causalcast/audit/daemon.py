"""PySpark's daemon that forks its workers, silent where Spark hangs up on one, as it does after a task that failed.

Spark hands on what the worker said; the daemon would print a traceback of the broken connection beside it. It forks,
so nothing is imported here that starts threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import daemon

if TYPE_CHECKING:
    from socket import socket

_worker = daemon.worker


def worker(sock: socket, authenticated: bool) -> int:
    """Serve one connection as PySpark does; return whether the process has to end."""
    try:
        code: int = _worker(sock, authenticated)
    except ConnectionError:
        return 1
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
