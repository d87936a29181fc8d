"""The report: whole or not there, true to its result at any size, inert whatever a trace holds, sound in a browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from causalcast.audit.outputs import to_json
from causalcast.audit.report import (
    MAX_PAGE_BYTES,
    MEANINGS,
    finding_lines,
    quantity,
    render_report,
    summary_rows,
    summary_table,
    write_report,
)
from causalcast.audit.result import (
    AuditResult,
    Distribution,
    Finding,
    PictureEvent,
    ProcessSummary,
    Quarantined,
    SpaceTime,
    Timeline,
    Transport,
)

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202egnp\x00\ud800&\"' [bold]"

OVERTAKEN = SpaceTime(
    ("paris", "london"),
    (
        PictureEvent("paris", 1, 0, "broadcast", "paris:1", "cause"),
        PictureEvent("paris", 2, 1, "broadcast", "paris:2", "message"),
        PictureEvent("london", 1, 2, "deliver", "paris:2", "message"),
        PictureEvent("london", 2, 3, "deliver", "paris:1", "cause"),
    ),
    ((0, 3), (1, 2)),
)
ROOT = Finding(
    "P3",
    "causal-order",
    "london",
    "paris:2",
    "paris:1",
    "london delivered paris:2 before paris:1",
    True,
    OVERTAKEN,
    culprit="paris:1",
    explains=1_232,
)
DERIVED = Finding(
    "P3",
    "causal-order",
    "london",
    "paris:3",
    "paris:1",
    "london delivered paris:3 before paris:1",
    False,
    culprit="paris:1",
)
ORPHAN = Finding(
    "P3",
    "fifo-order",
    "tokyo",
    "rome:5",
    "rome:4",
    "tokyo delivered rome:5 before rome:4",
    False,
    culprit="rome:4",
)
TWICE = Finding("P1", "duplicate", "paris", "london:9", None, "paris delivered london:9 twice", culprit="london:9")
TIMELINE = Timeline(
    0,
    10**9,
    {
        "latency_p50_ms": (3.0, None, 4.0, *(3.5,) * 57),
        "latency_p99_ms": (9.0, None, 12.5, *(10.0,) * 57),
        "members": (*(2.0,) * 30, *(3.0,) * 30),
        "redundancy": (0.25,) * 60,
    },
    ("mars",),
)

PASS = AuditResult(
    "pass",
    45_600,
    (ProcessSummary("paris", 9_000, 800, 3_200, 790, "member"), ProcessSummary("rome", 10, 1, 2, 0, "crashed")),
    4_000,
    16_000,
    0,
    {},
    (),
    latency=Distribution("ms", 16_000, 4.12, 3.3, 8.25, 21.7, 2_034.1),
    payload_bytes=Distribution("B", 4_000, 64, 64, 64, 64, 64),
    overhead_bytes=Distribution("B", 4_000, 31.4, 29, 41, 48, 77),
    notes=("rome crashed after event 10",),
    sources=("trace/paris.jsonl",),
    timeline=TIMELINE,
    transport=Transport(20_000, 20_000, 4_000, 0.25, Distribution("ms", 16_000, 0.5, 0.4, 0.9, 1.5, 2.0)),
)
FAIL = AuditResult(
    "fail",
    45_600,
    tuple(ProcessSummary(name, 100, 10, 80, 10, "member") for name in ("paris", "london", "tokyo")),
    4_000,
    16_000,
    1,
    {"causal-order": 1_233, "duplicate": 1, "fifo-order": 1},
    (ROOT, TWICE, DERIVED, ORPHAN),
    (Quarantined("trace/rome.jsonl", 17, "not JSON", '{"process": "ro'),),
    roots={"causal-order": 1, "duplicate": 1},
    suspects=(("london", 1), ("paris", 1)),
)


def large(processes: int) -> AuditResult:
    return AuditResult(
        "fail",
        100_000_000,
        tuple(
            ProcessSummary(f"node-{i:04}", 50_000, 50, 49_000, 50, "member" if i % 97 else "absent")
            for i in range(processes)
        ),
        100_000,
        99_000_000,
        1_000_000,
        dict.fromkeys(MEANINGS, 1_000_000),
        tuple(
            Finding("P3", kind, f"node-{i:04}", f"node-{i:04}:7", None, f"{kind} {i}", i < 25, OVERTAKEN)
            for kind in MEANINGS
            for i in range(50)
        ),
        tuple(Quarantined("trace.jsonl", line, "not JSON", "x" * 100_000) for line in range(1_000)),
        roots=dict.fromkeys(MEANINGS, 1_000_000),
        suspects=tuple((f"node-{i:04}", 100_000) for i in range(10)),
        timeline=TIMELINE,
    )


def hostile() -> AuditResult:
    picture = SpaceTime((HOSTILE,), (PictureEvent(HOSTILE, 1, 0, HOSTILE, f"{HOSTILE}:1", "message"),), ())
    return AuditResult(
        "fail",
        1,
        (ProcessSummary(HOSTILE, 1, 1, 1, 1, HOSTILE),),
        1,
        1,
        1,
        {"causal-order": 1, HOSTILE: 2},
        (Finding(HOSTILE, "causal-order", HOSTILE, HOSTILE, HOSTILE, HOSTILE, True, picture),),
        (Quarantined(HOSTILE, 1, HOSTILE, HOSTILE),),
        notes=(HOSTILE,),
        sources=(HOSTILE,),
    )


class Page(HTMLParser):
    """What a page consists of; raises on elements that are closed in the wrong order."""

    VOID = frozenset({"meta", "input", "link", "img", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def plain(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text)).strip()

    def having(self, attribute: str) -> list[str]:
        return [str(attrs[attribute]) for _, attrs in self.tags if attribute in attrs]


RESULTS = {"pass": PASS, "fail": FAIL, "large": large(2_000), "hostile": hostile()}


# ---------------------------------------------------------------------------------------------------------- content


@pytest.mark.parametrize("name", RESULTS)
def test_page_is_well_formed_and_complete_in_itself(name: str) -> None:
    text = render_report(RESULTS[name])
    page = Page(text)
    ids = page.having("id")
    assert len(ids) == len(set(ids))
    assert {h[1:] for h in page.having("href")} | set(page.having("aria-labelledby")) <= set(ids)
    assert not page.having("src")
    assert not [tag for tag, _ in page.tags if tag in ("link", "img", "iframe", "object")]
    scripts = [attrs.get("type") for tag, attrs in page.tags if tag == "script"]
    assert [kind for kind in scripts if kind != "application/json"] == [None]
    assert "url(" not in text
    assert "@import" not in text


@pytest.mark.parametrize("name", RESULTS)
def test_headings_descend_one_level_at_a_time_from_the_verdict(name: str) -> None:
    levels = [int(tag[1]) for tag, _ in Page(render_report(RESULTS[name])).tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_a_pass_says_so_first_with_what_it_rests_on() -> None:
    page = Page(render_report(PASS))
    plain = page.plain
    order = [
        "✓ Pass",
        "Every property that could be checked holds",
        "Summary",
        "No findings",
        "Over time",
        "Measurements",
    ]
    order += [
        "Processes member 1",
        "Every row of the input could be used",
        "rome crashed after event 10",
        "trace/paris.jsonl",
    ]
    assert sorted(order, key=plain.index) == order
    assert "16,000" in plain
    assert "3.30 ms" in plain
    assert "2.03 s" in plain
    assert "not measured" in plain  # stability


def test_a_failure_leads_to_its_first_root_and_to_the_picture() -> None:
    page = Page(render_report(FAIL))
    plain = page.plain
    assert "✗ Fail 1,235 findings of 3 kinds" in plain
    assert "2 roots explain all of them" in plain
    assert "First root: london delivered paris:2 before paris:1" in plain
    order = [
        "causal-order 1 root, 1,233 findings",
        "1,232 findings that this root explains",
        "london delivered paris:3",
    ]
    order += [
        "1,231 more not shown",
        "duplicate 1 root, 1 finding",
        "paris delivered london:9 twice",
        "fifo-order 0 roots",
    ]
    order += ["explained by roots that are not shown", "tokyo delivered rome:5"]
    assert sorted(order, key=plain.index) == order
    assert sum(attrs.get("class") == "spacetime" for _, attrs in page.tags) == 1
    assert "◆ d paris:2 ──▲ d paris:1" in plain
    assert "trace/rome.jsonl 17 not JSON" in plain


def test_what_happened_over_time_is_drawn_and_what_is_absent_is_said() -> None:
    page = Page(render_report(PASS))
    charts = [attrs["aria-label"] for _, attrs in page.tags if attrs.get("class") == "chart"]
    assert charts == [
        "Latency over time: median from 3 ms to 4 ms, 99 % from 9 ms to 12.5 ms",
        "Redundancy over time: redundant per first 0.25",
        "Members over time: members from 2 to 3",
    ]
    assert "relies on both clocks" in page.plain
    assert "The clocks of 1 process lie outside the time shown: mars" in page.plain
    assert "stability delay, not yet stable: no process reports stability with a time_ns" in page.plain
    assert (
        "20,000 receptions, 4,000 of them of what was there already. Relative message redundancy: 0.250" in page.plain
    )
    without = Page(render_report(FAIL)).plain
    assert "The trace carries no times" in without
    assert "redundancy and buffers were not measured" in without


def test_2000_processes_and_a_million_findings_of_each_kind_stay_bounded() -> None:
    text = render_report(large(2_000))
    plain = Page(text).plain
    assert len(text.encode()) <= MAX_PAGE_BYTES
    assert "999,975 more roots of this kind" in plain
    assert "99,600 more characters" in plain
    assert "16,000,000" in plain
    assert "Stable node-0000 absent" in plain  # whoever was not a plain member comes first
    assert len(island(text, "processes")) == 2_000


def test_a_page_that_would_be_too_heavy_shows_less_and_says_so() -> None:
    names = tuple(ProcessSummary("\u2603" * 390 + str(i), 1, 1, 1, 1, "member") for i in range(3_000))
    text = render_report(AuditResult("pass", 1, names, 1, 1, 0, {}, ()))
    kept = len(island(text, "processes"))
    assert len(text.encode()) <= MAX_PAGE_BYTES
    assert 0 < kept < 3_000
    assert f"{3_000 - kept:,} more processes not shown here" in Page(text).plain


def test_json_stays_small_with_a_million_findings() -> None:
    told = json.dumps(to_json(large(2_000)))
    assert len(told) < 200_000
    assert json.loads(told)["counts"]["causal-order"] == 1_000_000
    assert json.loads(told)["roots"]["causal-order"] == 1_000_000


def island(page: str, table: str) -> list[list[str | int]]:
    """Return the rows of a table that the page's script pages through."""
    part = page[page.index(f'data-table="{table}"') :]
    rows: list[list[str | int]] = json.loads(re.search(r'<script type="application/json">(.*?)</script>', part)[1])
    return rows


def test_hostile_text_shows_and_does_not_act() -> None:
    text = render_report(hostile())
    page = Page(text)
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert len(re.findall("<script", text)) == 3
    assert island(text, "processes")[0][0].startswith("</script><script>")
    assert not any(c in text for c in "\x1b\u202e\x00\ud800")
    assert r"\x1b[31m\u202egnp\x00\ud800" in page.plain
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]


def test_same_result_same_page() -> None:
    assert render_report(FAIL) == render_report(FAIL)


# ---------------------------------------------------------------------------------------------------------- writing


def test_report_is_never_empty_nor_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "folder" / "report.html"
    write_report(PASS, path)
    before = path.read_bytes()
    assert before.endswith(b"</html>\n")

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_report(FAIL, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


# --------------------------------------------------------------------------------------------------------- terminal


def printed(renderable: object) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    console.print(renderable)
    return console.export_text()


def test_summary_table_shows_what_a_person_asks_first() -> None:
    shown = printed(summary_table(PASS, title="five members [not markup]"))
    for part in ("five members [not markup]", "16,000", "3.30 ms", "21.7 ms", "31.4 B", "pass"):
        assert part in shown
    assert dict(summary_rows(FAIL))["verdict"] == "fail"
    assert dict(summary_rows(FAIL))["latency, median"] == "-"


def test_finding_in_lines_names_everything_and_ends_with_its_picture() -> None:
    lines = finding_lines(ROOT)
    assert lines[:4] == [
        "causal-order (P3): london delivered paris:2 before paris:1",
        "  process  london",
        "  message  paris:2",
        "  cause    paris:1",
    ]
    assert any("◆ d paris:2" in line for line in lines)
    assert "explained by a root" in finding_lines(DERIVED)[0]
    assert all(line.isascii() for line in finding_lines(hostile().findings[0], ascii_only=True))
    assert not any(c in "\n".join(finding_lines(hostile().findings[0])) for c in "\x1b\u202e\x00\ud800")


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "ms", "-"),
        (0.0, "ms", "0 µs"),
        (0.0123, "ms", "12.3 µs"),
        (0.9999, "ms", "1,000 µs"),
        (3.3, "ms", "3.30 ms"),
        (123.4, "ms", "123 ms"),
        (2034.1, "ms", "2.03 s"),
        (64, "B", "64 B"),
        (31.4, "B", "31.4 B"),
        (0.25, "B", "0.25 B"),
        (2_500_000, "B", "2.50 MB"),
    ],
)
def test_quantities_read_in_the_unit_one_would_choose(value: float | None, unit: str, shown: str) -> None:
    assert quantity(value, unit) == shown
