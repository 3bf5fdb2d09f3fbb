"""The status page in a browser: layout, light and dark mode, live updates, and use by keyboard."""

from __future__ import annotations

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
WIDTHS = (360, 1400)
LEAST_CONTRAST = 4.5

SPILLS = """() => [...document.querySelectorAll("article *, .batches *, .trouble *, .incidents *, .jobs li *")]
  .filter((each) => each.getBoundingClientRect().right >
                    each.closest("article, .batches, .trouble, .incidents, .jobs li").getBoundingClientRect().right)
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
    expect(page.locator("article.join").first).to_be_visible()
    page.close()


def test_a_large_plan_is_folded_but_for_what_is_wrong(browser: Browser) -> None:
    """Sinks are folded except those with problems, errors are at the top, and unfolded sinks stay unfolded."""
    job = scene.job("shop")
    shop = scene.lively(job, calm=frozenset(job.sinks) - {"balances"})
    shop.outage()
    with StatusServer(JobPages(shop, {}), "127.0.0.1", 0, Guard()) as server:
        page = opened(browser, server.port)
        assert page.evaluate("document.documentElement.scrollHeight") < 3_000
        assert [each.get_attribute("id") for each in page.locator("details.sink[open]").all()] == ["sink.balances"]
        expect(page.locator("#sink\\.balances > summary")).to_contain_text("late")
        places = [page.locator(each).bounding_box() for each in (".errors", "nav.contents", "details.sink >> nth=0")]
        heights = [each["y"] for each in places if each is not None]
        assert heights == sorted(heights)
        assert len(heights) == 3
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


def test_a_screen_reader_has_words_for_all_of_it(browser: Browser, port: int) -> None:
    """A screen reader finds headings, the state, the batches as a table, and links and buttons by name."""
    page = opened(browser, port)
    expect(page.get_by_role("heading", level=1)).to_have_text("orders-payments")
    expect(page.get_by_role("status")).to_have_text("failed")
    expect(page.get_by_role("heading", name="Recent errors")).to_be_visible()
    page.get_by_text("as a table").first.click()
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
