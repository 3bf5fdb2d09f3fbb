"""The status page in a browser: layout, light and dark mode, live updates, and use by keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from rowkind.service.monitoring.monitor import Monitor
from rowkind.service.web.http import Guard, StatusServer
from rowkind.service.web.job_pages import JobPages
from tests.page import scene

SHOTS = Path(__file__).parents[2] / ".rowkind" / "screenshots"
WIDTHS = (360, 768, 1300, 1600)
LEAST_CONTRAST = 4.5

SPILLS = """() => [...document.querySelectorAll("article *, .batches *, .trouble *, .incidents *, .jobs li *, "
                                            + ".node *, .chart *, .lanes *, .queries li *")]
  .filter((each) => each.getBoundingClientRect().right > 1 +
                    each.closest("article, .batches, .trouble, .incidents, .node, .chart, .lanes, li")
                      .getBoundingClientRect().right)
  .map((each) => `${each.tagName}.${each.className}: ${each.textContent.trim().slice(0, 40)}`)"""
"""The elements that extend beyond their card."""

CONTRASTS = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = (each) => {
    for (; each; each = each.parentElement) {
      const found = parse(getComputedStyle(each).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const found = {};
  for (const each of document.querySelectorAll("body *")) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !each.getClientRects().length) continue;
    const [a, b] = [light(parse(getComputedStyle(each).color)), light(paper(each))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found[`${each.tagName}.${each.className}: ${each.textContent.trim().slice(0, 40)}`] = ratio;
  }
  return found;
}"""
"""The contrast of every visible text with its background, computed as WCAG defines it."""


@pytest.fixture
def monitor() -> Monitor:
    """A job with much to report."""
    return scene.troubled(scene.job())


@pytest.fixture
def port(monitor: Monitor) -> Iterator[int]:
    """The port of the job's status page."""
    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, Guard()) as server:
        yield server.port


def texts_that_fit_and_stand_out(page: Page, width: int) -> int:
    """Check that no visible text is clipped, too wide or low in contrast; return the number of texts."""
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert not page.evaluate(SPILLS)
    contrasts: dict[str, float] = page.evaluate(CONTRASTS)
    assert not {text: ratio for text, ratio in contrasts.items() if ratio < LEAST_CONTRAST}
    return len(contrasts)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_can_be_read(browser: Browser, port: int, width: int, scheme: Literal["light", "dark"]) -> None:
    """With everything unfolded nothing is wider than the window, and every text has enough contrast."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.goto(f"http://127.0.0.1:{port}/")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"status-{width}-{scheme}.png", full_page=True)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.screenshot(path=SHOTS / f"status-{width}-{scheme}-unfolded.png", full_page=True)
    assert texts_that_fit_and_stand_out(page, width) > 100
    assert not complaints
    assert page.evaluate("document.querySelector('link[rel=icon]').href").startswith("data:")
    page.close()


def test_it_follows_the_job(browser: Browser, port: int, monitor: Monitor) -> None:
    """The page shows new numbers by itself and keeps unfolded parts and the focus."""
    page = opened(browser, port)
    page.get_by_text("Plan", exact=True).first.press("Enter")
    page.locator("article.join summary").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("article.join details").first).to_have_attribute("open", "")
    monitor.progress("main", scene.progress(77, 300))
    expect(page.locator("figcaption").first).to_contain_text("batch 77", timeout=20_000)
    expect(page.locator("article.join details").first).to_have_attribute("open", "")
    expect(page.locator("article.join summary").first).to_be_focused()
    page.close()


def test_it_can_be_told_to_stand_still(browser: Browser, port: int, monitor: Monitor) -> None:
    """With pause, the page does not change until it is resumed."""
    page = opened(browser, port)
    page.get_by_role("button", name="pause").press("Space")
    monitor.progress("main", scene.progress(78, 300))
    with pytest.raises(AssertionError):
        expect(page.locator("figcaption").first).to_contain_text("batch 78", timeout=3_000)
    page.get_by_role("button", name="resume").press("Space")
    expect(page.locator("figcaption").first).to_contain_text("batch 78", timeout=20_000)
    page.close()


def test_it_says_when_the_job_is_gone(browser: Browser, monitor: Monitor) -> None:
    """If the job no longer answers, the page says so and keeps showing the last status."""
    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, Guard()) as server:
        page = opened(browser, server.port)
    expect(page.get_by_role("alert")).to_contain_text("no longer responds", timeout=30_000)
    expect(page.locator(".node.join").first).to_be_visible()
    page.close()


def test_a_large_plan_is_folded_but_for_what_is_wrong(browser: Browser) -> None:
    """Sinks are folded except those with problems, errors are at the top, and unfolded sinks stay unfolded."""
    job = scene.job("shop")
    shop = scene.lively(job, calm=frozenset(job.sinks) - {"balances"})
    shop.outage()
    with StatusServer(JobPages(shop, {}), "127.0.0.1", 0, Guard()) as server:
        page = opened(browser, server.port)
        assert page.evaluate("document.documentElement.scrollHeight") < 5_000
        assert [each.get_attribute("id") for each in page.locator("details.sink[open]").all()] == ["sink.balances"]
        expect(page.locator("#sink\\.balances > summary")).to_contain_text("late")
        parts = (".timeline", ".errors", ".graph", ".history.hour", "nav.contents", "details.sink >> nth=0")
        places = [page.locator(each).bounding_box() for each in parts]
        heights = [each["y"] for each in places if each is not None]
        assert heights == sorted(heights)
        assert len(heights) == len(parts)
        links = page.get_by_role("navigation", name="Sinks").get_by_role("link")
        assert links.all_inner_texts() == list(job.sinks)
        links.get_by_text("large_orders").press("Enter")
        expect(page.locator("#sink\\.large_orders")).to_have_attribute("open", "")
        page.locator("#sink\\.balances > summary").click()
        shop.progress("main", scene.progress(79, 300))
        expect(page.locator("figcaption").first).to_contain_text("batch 79", timeout=20_000)
        expect(page.locator("#sink\\.large_orders")).to_have_attribute("open", "")
        expect(page.locator("#sink\\.balances")).not_to_have_attribute("open", "")
        page.close()


def test_the_graph_leads_to_the_plan(browser: Browser, port: int) -> None:
    """Each table, operator and sink is a node with its rate and its share of time; a click shows it in the plan."""
    page = opened(browser, port)
    graph = page.get_by_role("region", name="Graph of query main")
    expect(graph.locator(".node")).to_have_count(6)
    expect(graph.locator("text")).to_have_count(6)
    expect(graph.locator(".node.join").first).to_contain_text(re.compile(r"[\d,]+/s → [\d,]+/s.*\d+% busy"))
    expect(graph.locator(".node.scan").first).to_contain_text("lag 480,000 rows · 1 min 35 s")
    expect(graph.locator(".node.scan").first).to_contain_text("17 dead letters")
    graph.locator(".node.join").first.click()
    expect(page.locator("article.join").first).to_be_in_viewport()
    page.set_viewport_size({"width": 360, "height": 900})
    expect(graph.locator("svg")).to_be_hidden()
    expect(graph.locator(".node.join").first).to_contain_text("from orders, payments")
    page.close()


def test_a_wide_graph_scrolls_in_its_box(browser: Browser) -> None:
    """A graph that is wider than the window keeps its place when the page is updated."""
    shop = scene.lively(scene.job("shop"))
    with StatusServer(JobPages(shop, {}), "127.0.0.1", 0, Guard()) as server:
        page = opened(browser, server.port)
        page.locator(".graph").evaluate("(graph) => graph.scrollTo(300, 0)")
        shop.progress("main", scene.progress(81, 300))
        expect(page.locator("figcaption").first).to_contain_text("batch 81", timeout=20_000)
        assert page.locator(".graph").evaluate("(graph) => graph.scrollLeft") == 300
        assert page.evaluate("document.documentElement.scrollWidth") == 1400
        page.close()


def test_the_history_has_values_under_the_pointer(browser: Browser, port: int) -> None:
    """A chart shows the values under the pointer, and buttons choose the last hour or the last day."""
    page = opened(browser, port)
    chart = page.locator(".history.hour .chart").nth(3)
    chart.locator("svg").hover()
    expect(page.locator("#tip")).to_have_text(re.compile(r"\d\d:\d\d:\d\d UTC\s+p50 [\d.]+ s\s+p99 [\d.]+ s"))
    expect(page.locator(".history.day").first).to_be_hidden()
    page.get_by_role("button", name="24 h").press("Enter")
    expect(page.locator(".history.day").first).to_be_visible()
    expect(chart).to_be_hidden()
    page.locator(".history.day .chart").first.locator("svg").hover()
    expect(page.locator("#tip")).to_contain_text("written")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_many_queries_are_a_list(browser: Browser, width: int, scheme: Literal["light", "dark"]) -> None:
    """Fifty queries are a line each, with a picture of the graph, and each line leads to the query's page."""
    with StatusServer(JobPages(scene.many(50), {}), "127.0.0.1", 0, Guard()) as server:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text))
        page.goto(f"http://127.0.0.1:{server.port}/")
        expect(page.locator(".queries li .thumbnail")).to_have_count(50)
        page.screenshot(path=SHOTS / f"queries-{width}-{scheme}.png", full_page=True)
        assert texts_that_fit_and_stand_out(page, width) > 100
        page.get_by_role("link", name="query-07").click()
        expect(page.locator(".graph .node")).to_have_count(6)
        expect(page.get_by_role("heading", level=1)).to_have_text("many / query-07")
        assert texts_that_fit_and_stand_out(page, width) > 50
        page.get_by_role("link", name="all queries").click()
        expect(page.locator(".queries li")).to_have_count(50)
        assert not complaints
        page.close()


def test_a_screen_reader_has_words_for_all_of_it(browser: Browser, port: int) -> None:
    """A screen reader finds headings, the state, the batches as a table, and links and buttons by name."""
    page = opened(browser, port)
    expect(page.get_by_role("heading", level=1)).to_have_text("orders-payments")
    expect(page.get_by_role("status")).to_have_text("failed")
    expect(page.get_by_role("heading", name="Recent errors")).to_be_visible()
    page.locator(".batches").get_by_text("as a table").click()
    expect(page.get_by_role("columnheader", name="rows read")).to_be_visible()
    page.get_by_text("SQL", exact=True).first.click()
    page.get_by_role("link", name="Details of the plan").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("query plan")
    assert page.url.endswith("/explain#order_payments")
    expect(page.get_by_role("main")).to_be_visible()
    page.get_by_role("link", name="Status").click()
    expect(page.get_by_role("status")).to_have_text("failed")
    page.close()


def opened(browser: Browser, port: int) -> Page:
    """Return the page in a window of usual size."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(f"http://127.0.0.1:{port}/")
    return page
