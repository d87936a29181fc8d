"""TLS between members: both sides show a certificate of the group's authority that names them.

A member's name is the certificate's common name, or one of its DNS names. Which host it runs on does not matter.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from causalcast.model import CausalcastError
from causalcast.runtime.frames import REFUSED, LinkError

if TYPE_CHECKING:
    from asyncio import BaseTransport

    from causalcast.model import ProcessId


class TlsError(CausalcastError, ValueError):
    """Files that no TLS can be made of: says which, and why."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Where the PEM files are: this member's certificate (with its chain) and key, and the group's authority."""

    certificate: str | os.PathLike[str]
    key: str | os.PathLike[str]
    authority: str | os.PathLike[str]

    def context(self, *, server: bool) -> ssl.SSLContext:
        """What asyncio takes, for the side that listens or the one that dials; raises `TlsError`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # Members are known by their names, not by their hosts'; `require_name` checks them.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        for path in (self.authority, self.certificate, self.key):
            if not os.access(path, os.R_OK) or os.path.isdir(path):
                raise TlsError(f"{os.fspath(path)} cannot be read: give a PEM file")
        try:
            context.load_verify_locations(cafile=self.authority)
        except ssl.SSLError as error:
            raise TlsError(f"{os.fspath(self.authority)} holds no certificate of an authority: {_why(error)}") from None
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise TlsError(
                f"{os.fspath(self.certificate)} and {os.fspath(self.key)} are no certificate and its key: {_why(error)}"
            ) from None
        return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one that is not")


def _why(error: Exception) -> str:
    return (error.reason or str(error)) if isinstance(error, ssl.SSLError) else str(error)


def require_name(transport: BaseTransport, peer: ProcessId) -> None:
    """Raises `LinkError` unless the certificate shown on `transport` names `peer`; nothing without TLS."""
    certificate = transport.get_extra_info("peercert")
    if certificate is None:
        return
    named = {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
    named |= {value for rdn in certificate.get("subject", ()) for kind, value in rdn if kind == "commonName"}
    if peer not in named:
        shown = ", ".join(sorted(named)) or "nobody"
        raise LinkError(f"who calls itself {peer!r} shows a certificate of {shown}", REFUSED)
