"""Addresses as people write them."""

from __future__ import annotations

from typing import NamedTuple

from causalcast.model import CausalcastError


class InvalidAddressError(CausalcastError, ValueError):
    """Text that is no `host:port`."""


class Address(NamedTuple):
    """Where a member listens; the empty host is every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """`host:port`, `[ipv6]:port` or `:port`; raises `InvalidAddressError`."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535 or not _is_host(host):
            raise InvalidAddressError(f"{text!r} is no address; write host:port, such as localhost:7400 or [::1]:7400")
        return cls(host, int(port))


def _is_host(text: str) -> bool:
    """Whether a look-up can be asked for it; asyncio fails with a `UnicodeError` for what cannot."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return not text or text.isprintable()
