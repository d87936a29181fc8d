"""Members that know each other by certificates, and strangers that are turned away."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

import causalcast
from causalcast import Tls, TlsError
from tests.runtime.cluster import DIALS_US, applications, run

if TYPE_CHECKING:
    from pathlib import Path


class Files:
    """Certificates of one authority, as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))

    def tls(self, name: str, *, common: bool = False) -> Tls:
        """The certificate of `name`, by its common name or a DNS name."""
        issued = (
            self.authority.issue_cert("elsewhere.example", common_name=name)
            if common
            else self.authority.issue_cert(name)
        )
        issued.private_key_pem.write_to_path(str(self.folder / f"{name}.key"))
        with (self.folder / f"{name}.pem").open("wb") as file:
            for blob in issued.cert_chain_pems:
                file.write(blob.bytes())
        return Tls(self.folder / f"{name}.pem", self.folder / f"{name}.key", self.folder / "ca.pem")


async def until(condition: object, seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("common", [False, True], ids=["dns-name", "common-name"])
def test_members_talk_over_tls_across_broken_connections(tmp_path: Path, common: bool) -> None:
    files = Files(tmp_path)

    async def main() -> None:
        b = causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US}, tls=files.tls("b", common=common))
        async with b:
            peers = {"b": b.address}
            a = causalcast.open("a", listen="127.0.0.1:0", peers=peers, tls=files.tls("a", common=common))
            async with a, applications([a, b]) as (left, right):
                large = bytes(3_000_000)
                for number in range(100):
                    await a.broadcast(large if number == 50 else b"%d" % number)
                    await b.broadcast(b"%d" % number)
                    if number == 50:
                        for connection in list(b._running.mesh._connections.values()):
                            assert connection._transport is not None
                            connection._transport.abort()
                await left.until_delivered(100)
                await right.until_delivered(100)
                assert right.delivered[50].message.payload == large

    run(main())


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ("c", "shows a certificate of c"),
        ("stranger", "cannot be reached"),
        ("nobody", "cannot be reached|closed|broke"),
    ],
)
def test_whoever_cannot_show_who_it_is_is_turned_away(tmp_path: Path, shown: str, why: str) -> None:
    """A member with another member's certificate, one of another authority, one without TLS: each dials `b`."""
    files = Files(tmp_path)
    other = {"c": files.tls("c"), "stranger": Files(tmp_path / "else").tls("a"), "nobody": None}[shown]

    async def main() -> None:
        async with causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US}, tls=files.tls("b")) as b:
            async with causalcast.open("a", listen="127.0.0.1:0", peers={"b": b.address}, tls=other) as a:
                await until(lambda: a.links()[0].reason is not None)
                reason = a.links()[0].reason
                assert reason is not None
                assert re.search(why, reason), reason
                assert not a.links()[0].connected
                assert not b.links()[0].connected
                assert b._running.mesh._strangers == {}
            async with causalcast.open("a", listen="127.0.0.1:0", peers={"b": b.address}, tls=files.tls("a")) as a:
                await until(lambda: a.links()[0].connected)

    run(main())


def test_a_member_that_listens_under_a_false_name_is_not_spoken_to(tmp_path: Path) -> None:
    files = Files(tmp_path)

    async def main() -> None:
        async with (
            causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US}, tls=files.tls("c")) as b,
            causalcast.open("a", listen="127.0.0.1:0", peers={"b": b.address}, tls=files.tls("a")) as a,
        ):
            await a.broadcast(b"secret")
            await until(lambda: a.links()[0].reason is not None)
            assert a.links()[0].reason == "who calls itself 'b' shows a certificate of c"
            assert b.untaken == 0

    run(main())


def test_bytes_that_are_no_tls_end_their_connection_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = Files(tmp_path)

    async def main() -> None:
        async with causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US}, tls=files.tls("b")) as b:
            host, port = b._running.mesh.address
            for data in (b"", b"GET / HTTP/1.0\r\n\r\n", bytes(range(256)) * 40):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(data)
                writer.write_eof()
                assert len(await reader.read()) < 100
                writer.close()
            async with causalcast.open("a", listen="127.0.0.1:0", peers={"b": b.address}, tls=files.tls("a")) as a:
                await until(lambda: a.links()[0].connected)

    with caplog.at_level(logging.WARNING, "asyncio"):
        run(main())
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_only_the_newest_tls_is_spoken(tmp_path: Path) -> None:
    assert Files(tmp_path).tls("a").context(server=True).minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda tls: Tls(tls.certificate, tls.key, "/nowhere/ca.pem"), "/nowhere/ca.pem cannot be read"),
        (lambda tls: Tls(tls.certificate, "/tmp", tls.authority), "/tmp cannot be read"),
        (lambda tls: Tls(tls.key, tls.key, tls.authority), "no certificate and its key"),
        (lambda tls: Tls(tls.certificate, tls.certificate, tls.authority), "no certificate and its key"),
        (lambda tls: Tls(tls.certificate, tls.key, tls.key), "no certificate of an authority"),
    ],
)
def test_files_that_no_tls_can_be_made_of(tmp_path: Path, spoil: object, words: str) -> None:
    tls = spoil(Files(tmp_path).tls("a"))  # type: ignore[operator]

    async def main() -> None:
        async with causalcast.open("a", listen="127.0.0.1:0", peers={}, tls=tls):
            pass

    with pytest.raises(TlsError, match=words):
        run(main())
