"""Pictures: every event and mark is there, in order, within its width, and no name can act instead of show."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len

from causalcast.audit.bundles import split
from causalcast.audit.clocks import build_clock
from causalcast.audit.logs import digest
from causalcast.audit.picture import NEVER, draw_svg, draw_text, shorten, visible
from causalcast.audit.result import PictureEvent, SpaceTime
from causalcast.audit.witness import Witness
from tests.audit.local import judge, table

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp\x00\ud800&\"'"

OVERTAKEN = SpaceTime(
    ("paris", "london", "tokyo"),
    (
        PictureEvent("paris", 1, 0, "broadcast", "paris:1", "cause"),
        PictureEvent("london", 3, 1, "deliver", "paris:1", "cause"),
        PictureEvent("london", 4, 2, "broadcast", "london:1", "path"),
        PictureEvent("london", 5, 3, "broadcast", "london:2", "message"),
        PictureEvent("tokyo", 7, 4, "deliver", "london:2", "message"),
        PictureEvent("tokyo", 8, 5, "broadcast", "tokyo:1", "context"),
        PictureEvent("tokyo", 12, 6, "deliver", "paris:1", "cause"),
    ),
    ((0, 1), (0, 6), (3, 4)),
)


def test_text_stands_as_drawn() -> None:
    assert draw_text(OVERTAKEN, 100).splitlines() == [
        "paris  ──▲ b paris:1 ───────────────────────────────────────────────────────────────▶",
        "london ┄┄┄┄▲ d paris:1 ──● b london:1 ──◆ b london:2 ───────────────────────────────▶",
        "tokyo  ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄◆ d london:2 ──○ b tokyo:1 ┄┄▲ d paris:1 ─▶",
        "",
        "◆ offending message london:2",
        "▲ its cause paris:1",
        "● on the path between",
        "○ other",
        "b broadcast, d deliver, ┄┄ events left out",
    ]


def test_ascii_on_request_even_where_names_are_not() -> None:
    drawn = draw_text(
        SpaceTime(("Zürich",), (PictureEvent("Zürich", 1, 0, "broadcast", "Zürich:1", "message"),), ()),
        80,
        ascii_only=True,
    )
    assert drawn.isascii()
    assert "# b Z\\xfcrich:1" in drawn


@pytest.mark.parametrize("width", [0, 40, 61, 200])
def test_text_keeps_its_width_and_order_and_loses_no_event(width: int) -> None:
    events = tuple(
        PictureEvent(f"東京-{i % 3}", i // 3 + 1, i, "deliver", f"{'long' * (i % 9)}:{i}", "context") for i in range(40)
    )
    drawn = draw_text(SpaceTime(tuple(f"東京-{i}" for i in range(3)), events, ()), width)
    assert max(map(cell_len, drawn.splitlines())) <= max(width, 40)
    assert drawn.count("○ d ") == 40
    assert ("goes on below" in drawn) == (drawn.count("東京-0") > 1)


def test_two_events_of_a_process_in_one_column_stand_side_by_side() -> None:
    events = tuple(PictureEvent("a", seq, 0, "deliver", f"b:{seq}", "context") for seq in (2, 1))
    assert "b:1" in draw_text(SpaceTime(("a",), events, ())).partition("b:2")[0]
    positions = [
        c.get("cx") for c in ElementTree.fromstring(draw_svg(SpaceTime(("a",), events, ()))).iter(f"{SVG}circle")
    ]
    assert len(set(positions)) == 2


def test_an_empty_picture_is_still_a_picture() -> None:
    assert draw_text(SpaceTime((), (), ())) is not None
    ElementTree.fromstring(draw_svg(SpaceTime((), (), ())))
    ElementTree.fromstring(draw_svg(SpaceTime(("a",), (), ())))


def test_svg_has_a_circle_an_event_an_arrow_a_delivery_and_says_what_it_shows() -> None:
    root = ElementTree.fromstring(draw_svg(OVERTAKEN))
    told = [title.text for title in root.iter(f"{SVG}title")]
    assert root.get("aria-label") == told[0]
    assert "offending message london:2; its cause paris:1" in str(told[0])
    assert "tokyo, event 7: deliver london:2 (offending message)" in told
    assert len([p for p in root.iter(f"{SVG}path") if p.get("class") == "arrow"]) == 3
    letters = [t.text for t in root.iter(f"{SVG}text") if t.get("class") == "letter"]
    assert sorted(map(str, letters)) == sorted("CCCPMM" + "CPM")  # each event, and each in the legend


def test_svg_needs_nothing_from_outside_and_its_style_can_be_shared() -> None:
    drawn = draw_svg(OVERTAKEN)
    assert drawn.count("http") == 1  # the namespace
    assert "url(" not in drawn
    assert "id=" not in drawn  # many pictures share a page
    assert "prefers-color-scheme:dark" in drawn
    assert "<style>" not in draw_svg(OVERTAKEN, styled=False)


def test_an_own_delivery_is_drawn_as_an_arc() -> None:
    events = (
        PictureEvent("a", 1, 0, "broadcast", "a:1", "message"),
        PictureEvent("a", 2, 1, "deliver", "a:1", "message"),
    )
    root = ElementTree.fromstring(draw_svg(SpaceTime(("a",), events, ((0, 1),))))
    assert "Q" in str(next(p for p in root.iter(f"{SVG}path")).get("d"))


def test_hostile_names_show_and_do_not_act() -> None:
    picture = SpaceTime((HOSTILE,), (PictureEvent(HOSTILE, 1, 0, "broadcast", f"{HOSTILE}:1", "message"),), ())
    root = ElementTree.fromstring(draw_svg(picture))
    assert root.find(f".//{SVG}script") is None
    for drawn in (draw_text(picture, 200), draw_svg(picture)):
        assert not any(c in drawn for c in "\x1b\u202e\x00\ud800")
        drawn.encode("utf-8")


def test_visible_leaves_readable_text_alone() -> None:
    assert visible("Zürich 東京 🙂") == "Zürich 東京 🙂"
    assert visible("a\nb\x1b") == "a\\nb\\x1b"


@pytest.mark.parametrize("cells", range(4, 20))
def test_shorten_keeps_both_ends(cells: int) -> None:
    short = shorten("process-東京-0123456789:42", cells)
    assert cell_len(short) <= cells
    assert short.startswith("p")
    assert short.endswith("2")
    assert shorten("short", 5) == "short"


def test_what_never_came_stands_behind_the_line_of_who_waits_for_it() -> None:
    rows: list[dict[str, Any]] = [
        {"process": "a", "seq": 1, "event": "broadcast", "origin": "a", "counter": 1},
        {"process": "b", "seq": 1, "event": "deliver", "origin": "a", "counter": 1},
        {"process": "b", "seq": 2, "event": "broadcast", "origin": "b", "counter": 1},
        {"process": "a", "seq": 2, "event": "deliver", "origin": "b", "counter": 1},
        {"process": "c", "seq": 1, "event": "deliver", "origin": "b", "counter": 1},
    ]
    digests = [digest(process, columns) for process, columns in split(table(rows))]
    logs = {index.process: index for index, _ in digests}
    witness = Witness(build_clock(list(logs.values())).clock, logs)
    (root,) = [case for case in judge(rows) if case.root]
    assert (root.kind, root.culprit, root.explains) == ("undelivered", "a:1", 1)

    picture = witness.picture(root)

    assert picture is not None
    never = next(event for event in picture.events if event.event == NEVER)
    assert (never.process, never.message, never.role) == ("c", "a:1", "cause")
    assert never.column == max(event.column for event in picture.events if event.process == "c")
    assert "never a:1" in draw_text(picture)
    drawn = draw_svg(picture)
    assert "c, never delivered a:1" in drawn
    assert 'class="cause lost"' in drawn
