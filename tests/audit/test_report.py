"""The report: whole or not there, true to its result at any size, inert whatever a trace holds, sound in a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from causalcast.audit.report import (
    MAX_FINDINGS,
    MAX_PROCESSES,
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
    "P3", "causal-order", "london", "paris:2", "paris:1", "london delivered paris:2 before paris:1", True, OVERTAKEN
)
DERIVED = Finding("P3", "causal-order", "tokyo", "paris:3", "paris:1", "tokyo delivered paris:3 before paris:1", False)
TWICE = Finding("P1", "duplicate", "paris", "london:9", None, "paris delivered london:9 twice")

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
)
FAIL = AuditResult(
    "fail",
    45_600,
    tuple(ProcessSummary(name, 100, 10, 80, 10, "member") for name in ("paris", "london", "tokyo")),
    4_000,
    16_000,
    1,
    {"causal-order": 1_234, "duplicate": 1},
    (ROOT, TWICE, DERIVED),
    (Quarantined("trace/rome.jsonl", 17, "not JSON", '{"process": "ro'),),
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
    assert [tag for tag, _ in page.tags if tag in ("link", "img", "iframe", "script")] == ["script"]
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
    order = ["✓ Pass", "Every property that could be checked holds", "Summary", "No findings", "Measurements"]
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
    assert "✗ Fail 1,235 findings of 2 kinds" in plain
    assert "First root: london delivered paris:2 before paris:1" in plain
    assert plain.index("london delivered") < plain.index("tokyo delivered") < plain.index("paris delivered london:9")
    assert "1 finding that a root explains" in plain
    assert "1,232 more findings of this kind are not shown here" in plain
    assert sum(attrs.get("class") == "spacetime" for _, attrs in page.tags) == 1
    assert "◆ d paris:2 ──▲ d paris:1" in plain
    assert "trace/rome.jsonl 17 not JSON" in plain


def test_2000_processes_and_a_million_findings_of_each_kind_stay_bounded() -> None:
    text = render_report(large(MAX_PROCESSES + 500))
    plain = Page(text).plain
    assert len(text) < 8_000_000
    assert "500 more processes not shown" in plain
    assert "999,950 more findings of this kind" in plain
    assert "999,500 more rows not shown" in plain
    assert "99,600 more characters" in plain
    assert "12,000,000" in plain
    assert "Stable node-0000 absent" in plain  # whoever was not a plain member comes first


def test_more_samples_than_a_page_takes_are_counted() -> None:
    many = AuditResult("fail", 1, (), 1, 1, 0, {}, (TWICE,) * (MAX_FINDINGS + 7))
    assert "7 more findings of this kind" in Page(render_report(many)).plain


def test_hostile_text_shows_and_does_not_act() -> None:
    text = render_report(hostile())
    page = Page(text)
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert len(re.findall("<script", text)) == 1
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


# ---------------------------------------------------------------------------------------------------------- browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium found: install Debian's package chromium")

PROBE = """
const told = (event) => { document.documentElement.dataset.error = event.message; };
window.addEventListener("error", told);
const box = document.getElementById("filter");
const shown = () => [...document.querySelectorAll("[data-item]")].filter((n) => !n.closest("[hidden]")).length;
const type = (text) => { box.value = text; box.dispatchEvent(new InputEvent("input", { bubbles: true })); };
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const seen = { all: shown() };
press("/"); seen.focused = document.activeElement === box;
type("tokyo paris:3"); seen.one = shown(); seen.status = document.getElementById("filter-status").textContent;
seen.fold = document.querySelector(".fold").open;
seen.groups = document.querySelectorAll("[data-group]:not([hidden])").length;
type("DUPLICATE"); seen.kind = shown();
type("nothing like this"); seen.none = shown();
press("Escape"); seen.cleared = shown(); seen.closed = !document.querySelector(".fold").open;
type("nothing like this"); document.querySelector(".first a").click();
window.addEventListener("hashchange", () => {
  const finding = document.getElementById("finding-1");
  seen.followed = finding.open && !finding.closest("[hidden]") && document.activeElement === finding.firstElementChild;
  seen.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  seen.background = getComputedStyle(document.body).backgroundColor;
  seen.picture = getComputedStyle(document.querySelector(".spacetime .message circle")).fill;
  const data = document.documentElement.dataset;
  for (const key in seen) data[key] = seen[key];
});
"""


def browse(url: str, profile: Path, *flags: str) -> tuple[str, list[str]]:
    """Open a page in a headless browser; return its elements once it has settled, and the lines of its console."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={profile}", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000"]
    done = subprocess.run([*command, *flags, "--dump-dom", url], capture_output=True, timeout=120, check=True)
    console = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if "CONSOLE" in line]
    return done.stdout.decode("utf-8"), console


@in_a_browser
@pytest.mark.parametrize("name", ["pass", "large", "hostile"])
def test_opens_from_disk_without_a_word_on_the_console(name: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(RESULTS[name], path)
    _, console = browse(path.as_uri(), tmp_path / "profile")
    assert console == []


@in_a_browser
def test_the_console_would_have_told(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_report(PASS).replace("</body>", "<script>alert(1)</script></body>"), encoding="utf-8")
    _, console = browse(path.as_uri(), tmp_path / "profile")
    assert "Content Security Policy" in "".join(console)


@in_a_browser
@pytest.mark.parametrize("dark", [False, True])
def test_filter_and_links_work_by_keyboard_in_light_and_dark(tmp_path: Path, dark: bool) -> None:
    path = tmp_path / "report.html"
    page = re.sub(r"<meta http-equiv[^>]*>", "", render_report(FAIL))  # or the policy would stop the probe
    path.write_text(page.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    dom, console = browse(path.as_uri(), tmp_path / "profile", scheme)
    root = next(attrs for tag, attrs in Page(dom.partition("<head>")[0] + "</html>").tags if tag == "html")
    seen = {key.removeprefix("data-"): value for key, value in root.items() if key.startswith("data-")}
    assert console == []
    assert seen == {
        "all": "7",  # three findings, three processes, one quarantined row
        "focused": "true",
        "one": "1",
        "status": "1 of 7 match",
        "fold": "true",
        "groups": "1",
        "kind": "1",
        "none": "0",
        "cleared": "7",
        "closed": "true",
        "followed": "true",
        "dark": str(dark).lower(),
        "background": "rgb(14, 18, 23)" if dark else "rgb(245, 246, 248)",
        "picture": "rgb(255, 123, 120)" if dark else "rgb(192, 38, 45)",
    }


@in_a_browser
def test_an_address_can_name_a_finding_and_a_filter(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(FAIL, path)
    dom, _ = browse(f"{path.as_uri()}?q=trace/rome", tmp_path / "one")
    assert "1 of 7 match" in dom
    dom, _ = browse(f"{path.as_uri()}#finding-2", tmp_path / "two")  # inside what a root explains
    details = [attrs for tag, attrs in Page(dom).tags if tag == "details"]
    assert next(a for a in details if a.get("id") == "finding-2").get("open") == ""
    assert next(a for a in details if a.get("class") == "fold").get("open") == ""
