"""Whatever is fed to an importer: events, named rejections, or one named error."""

from __future__ import annotations

import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causalcast.trace import TraceEvent
from causalcast.trace.importers import ClockedEvent, ImportUnusable, Rejected, opentelemetry, schema1, shiviz, tla
from tests.trace.public_logs import EXCERPTS
from tests.trace.test_importers import CHILD, LINKED, PARENT, document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from causalcast.trace.importers import Item

SEEDS: dict[Callable[[Path], Iterator[Item]], bytes] = {
    shiviz: (EXCERPTS / "shiviz_chord.log").read_bytes()[:600],
    tla: (EXCERPTS / "ewd998_EWD998ChanTrace.ndjson").read_bytes()[:600],
    opentelemetry: document(PARENT, CHILD, LINKED).encode(),
    schema1: b'{"process":"a","seq":1,"event":"broadcast","origin":"a","counter":1,"context":[["b",2]]}\n' * 3,
}

PARTS = [b'"', b"{", b"}", b"\n", b"-1", b"\\ud800"]


@st.composite
def mutations(draw: st.DrawFn, seed: bytes) -> bytes:
    text = bytearray(seed)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 20))
        text[at : at + cut] = draw(
            st.binary(max_size=8) | st.sampled_from([b'"', b"{", b"}", b"\n", b"-1", b"\\ud800"])
        )
    return bytes(text)


@pytest.mark.parametrize("importer", SEEDS, ids=lambda importer: importer.__name__)
def test_any_bytes_are_events_rejections_or_a_named_error(importer: Callable[[Path], Iterator[Item]]) -> None:
    @settings(max_examples=120, deadline=None)
    @given(st.binary(max_size=200) | mutations(SEEDS[importer]))
    def check(text: bytes) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "log"
            path.write_bytes(text)
            found: list[Item] = []
            with contextlib.suppress(ImportUnusable):
                found.extend(importer(path))
        for item in found:
            assert isinstance(item, TraceEvent | ClockedEvent | Rejected)
            msgspec.json.encode(item)
            if isinstance(item, Rejected):
                assert item.file == str(path)
                assert item.line >= 1

    check()
