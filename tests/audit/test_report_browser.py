"""The report in a real browser: opened from disk, read, searched and followed as a person would, by key and pointer."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from causalcast.audit.report import render_report, write_report
from tests.audit.test_report import FAIL, PASS, RESULTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

# How far the text of every element that has some stands out from what is painted behind it, as WCAG 2 counts it.
CONTRASTS = """
const channel = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const rgba = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length === 3 ? [...n, 1] : n; };
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const [r, g, b, a] = rgba(getComputedStyle(at).backgroundColor);
    if (a === 1) return [r, g, b];
  }
  return [255, 255, 255];
};
const found = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || !node.checkVisibility() || node.closest("script, style, title, .slice, :disabled")) continue;
  const style = getComputedStyle(node);
  const svg = node instanceof SVGElement;
  const ink = rgba(svg ? style.fill : style.color).slice(0, 3);
  const disc = svg && node.classList.contains("letter") && node.parentElement.querySelector("circle");
  const around = svg ? node.closest("svg").parentElement : node;
  const paper = disc ? rgba(getComputedStyle(disc).fill).slice(0, 3) : behind(around);
  const [low, high] = [light(ink), light(paper)].sort((a, b) => a - b);
  const ratio = (high + 0.05) / (low + 0.05);
  found.push([ratio, node.tagName + "." + (node.getAttribute("class") ?? ""), node.textContent.trim().slice(0, 40)]);
}
return found.sort((a, b) => a[0] - b[0]);
"""


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    assert None not in (browser, driver), "no Chromium with its chromedriver found: run make browser"
    options = Options()
    options.binary_location = str(browser)
    options.add_argument("--headless=new")
    options.add_argument("--disable-gpu")
    options.add_argument("--disable-dev-shm-usage")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(driver))
    yield running
    running.quit()


class Reader:
    """Someone who looks at a report."""

    def __init__(self, chrome: Chrome, folder: Path) -> None:
        self.chrome = chrome
        self.path = folder / "report.html"

    def open(self, name: str, *, dark: bool = False, width: int = 1280, address: str = "") -> Reader:
        write_report(RESULTS[name], self.path)
        return self.look(dark=dark, width=width, address=address)

    def look(self, *, dark: bool = False, width: int = 1280, address: str = "") -> Reader:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.chrome.get("about:blank")
        self.chrome.get_log("browser")
        self.chrome.get_log("performance")
        self.chrome.get(self.path.as_uri() + address)
        return self

    def press(self, *keys: str) -> None:
        ActionChains(self.chrome).send_keys(*keys).perform()

    def one(self, selector: str) -> WebElement:
        return self.chrome.find_element(By.CSS_SELECTOR, selector)

    def script(self, text: str) -> Any:
        return self.chrome.execute_script(text)

    @property
    def focused(self) -> str:
        return self.chrome.switch_to.active_element.text

    @property
    def status(self) -> str:
        return self.one("#filter-status").text

    @property
    def shown(self) -> list[str]:
        """Return the details of the findings in view."""
        found = self.chrome.find_elements(By.CSS_SELECTOR, ".finding > summary .detail")
        return [node.text for node in found if node.is_displayed()]

    @property
    def console(self) -> list[str]:
        return [entry["message"] for entry in self.chrome.get_log("browser")]

    @property
    def requests(self) -> set[str]:
        sent = (json.loads(entry["message"])["message"] for entry in self.chrome.get_log("performance"))
        return {e["params"]["request"]["url"] for e in sent if e["method"] == "Network.requestWillBeSent"}


@pytest.fixture
def reader(chrome: Chrome, tmp_path: Path) -> Reader:
    return Reader(chrome, tmp_path)


@pytest.mark.parametrize(("name", "dark"), [("pass", False), ("fail", True), ("large", False), ("hostile", True)])
def test_opens_from_disk_without_a_request_or_a_word_on_the_console(reader: Reader, name: str, dark: bool) -> None:
    reader.open(name, dark=dark)
    assert reader.one("h1").text.split() == (["✓", "Pass"] if name == "pass" else ["✗", "Fail"])
    assert reader.console == []
    assert reader.requests == {reader.path.as_uri()}


def test_the_console_would_have_told(reader: Reader) -> None:
    reader.path.write_text(render_report(PASS).replace("</body>", "<script>alert(1)</script></body>"), encoding="utf-8")
    reader.look()
    assert "Content Security Policy" in "".join(reader.console)


def test_a_finding_is_followed_to_its_picture(reader: Reader) -> None:
    reader.open("fail")
    reader.one("#filter").send_keys("nothing like this")
    assert reader.shown == []
    reader.one(".first a").click()
    assert reader.chrome.current_url.endswith("#finding-1")
    assert "london delivered paris:2 before paris:1" in reader.focused
    assert reader.one("#finding-1 .spacetime").is_displayed()
    assert "its cause paris:1" in reader.one("#finding-1 .spacetime").get_attribute("aria-label")
    assert reader.one("#finding-1 .consequences li").is_displayed()


def test_typing_filters_findings_and_tables(reader: Reader) -> None:
    reader.open("fail")
    box = reader.one("#filter")
    box.send_keys("duplicate")  # the kind, which stands in the heading
    assert reader.shown == ["paris delivered london:9 twice"]
    assert reader.status == "1 of 7 match"
    box.clear()
    box.send_keys("tokyo rome:5")
    assert reader.shown == []
    assert reader.one(".fold").get_attribute("open") is not None
    box.clear()
    box.send_keys("rome.jsonl")
    assert reader.one('[data-table="quarantine"] tbody').text.startswith("trace/rome.jsonl")
    assert reader.one('[data-table="processes"] tbody').text == ""
    reader.press(Keys.ESCAPE)
    assert (reader.status, len(reader.shown)) == ("", 2)
    assert reader.one(".fold").get_attribute("open") is None


def test_everything_is_reached_by_keyboard_alone(reader: Reader) -> None:
    reader.open("fail")
    reader.press("/", "paris", Keys.ENTER)  # into the box, then on to the first match
    assert "london delivered paris:2" in reader.focused
    assert reader.one("#finding-1").get_attribute("open") is not None
    reader.press(Keys.ARROW_DOWN)
    assert "paris delivered london:9" in reader.focused
    reader.press(Keys.ENTER)
    assert reader.one("#finding-2").get_attribute("open") is not None
    reader.press("k")
    assert "london delivered paris:2" in reader.focused
    reader.press("j", "j")
    assert "paris delivered london:9" in reader.focused  # there is none behind the last
    reader.press(Keys.ESCAPE)
    assert reader.status == ""
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert reader.script(outline) == "solid"
    reader.script("document.activeElement.blur()")
    stops = set()
    for _ in range(60):
        reader.press(Keys.TAB)
        stops.add(reader.script("return document.activeElement.id || document.activeElement.className"))
    assert {"theme", "filter", "scroll", "who", "sort"} <= stops


def test_a_name_leads_to_all_that_names_it(reader: Reader) -> None:
    reader.open("fail")
    reader.one("#finding-1 .who").click()
    assert reader.one("#filter").get_property("value") == "london"
    assert reader.one('[data-table="processes"] tbody').text.startswith("london")


def test_the_switch_changes_the_colours_and_is_remembered(reader: Reader) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    reader.open("fail")
    light = reader.script(background)
    reader.one("#theme").click()
    dark = reader.script(background)
    assert light != dark
    assert reader.one("#theme").text == "Light"
    reader.look()
    assert reader.script(background) == dark
    reader.one("#theme").click()
    assert reader.script(background) == light
    reader.script("localStorage.clear()")
    reader.look(dark=True)
    assert reader.script(background) == dark


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["pass", "fail"])
def test_text_stands_out_from_its_background(reader: Reader, name: str, dark: bool) -> None:
    reader.open(name, dark=dark)
    reader.script("for (const node of document.querySelectorAll('details')) node.open = true")
    measured = reader.script(CONTRASTS)
    assert len(measured) > 50
    assert [entry for entry in measured if entry[0] < 4.5] == []


@pytest.mark.parametrize("name", ["pass", "fail", "large", "hostile"])
def test_a_narrow_window_scrolls_no_further_than_down(reader: Reader, name: str) -> None:
    reader.open(name, width=360)
    assert reader.script("return document.documentElement.scrollWidth") <= 360


def test_2000_processes_are_paged_sorted_and_searched(reader: Reader) -> None:
    reader.open("large")
    rows = '[data-table="processes"] tbody tr'
    pager = reader.one('[data-table="processes"] .pager')
    assert len(reader.chrome.find_elements(By.CSS_SELECTOR, rows)) == 25
    assert pager.find_element(By.TAG_NAME, "output").text == "1 to 25 of 2,000"
    assert reader.one(rows).text.startswith("node-0000 absent")
    reader.script("document.getElementById('processes').scrollIntoView()")
    pager.find_element(By.CSS_SELECTOR, '[data-step="1"]').click()
    assert pager.find_element(By.TAG_NAME, "output").text == "26 to 50 of 2,000"
    reader.script("document.getElementById('processes').scrollIntoView()")
    name = reader.one('[data-table="processes"] [data-sort="0"]')
    name.click()
    name.click()
    assert reader.one(rows).text.startswith("node-1999")
    reader.one("#filter").send_keys("node-0042")
    assert [row.text.split()[0] for row in reader.chrome.find_elements(By.CSS_SELECTOR, rows)] == ["node-0042"]
    took = reader.script(
        "const box = document.getElementById('filter'); const start = performance.now();"
        "box.value = 'node'; box.dispatchEvent(new Event('input')); return performance.now() - start"
    )
    assert took < 1_000


def test_an_address_can_name_a_finding_and_a_filter(reader: Reader) -> None:
    reader.open("fail", address="?q=trace/rome")
    assert reader.status == "1 of 7 match"
    reader.open("fail", address="#finding-2")
    assert reader.one("#finding-2").get_attribute("open") is not None


def test_a_chart_tells_a_pointer_what_a_slice_holds(reader: Reader) -> None:
    reader.open("pass")
    told = reader.one(".chart .slice title").get_attribute("textContent")
    assert told == "from 0: median 3 ms, 99 % 9 ms"
    assert reader.one(".chart").get_attribute("aria-label").startswith("Latency over time: median from 3 ms")
    assert FAIL.timeline is None
