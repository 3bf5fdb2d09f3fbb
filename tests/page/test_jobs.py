"""The pages of a multi-job service in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from rowkind.service.multi.multi_job import Several
from rowkind.service.multi.pages import SeveralPages
from rowkind.service.web.http import Guard, StatusServer
from tests.page import jobs, scene
from tests.page.test_browser import SHOTS, WIDTHS, texts_that_fit_and_stand_out

CARET = """() => {
  const wrong = document.querySelector(".trouble.refused .lines").firstChild, range = document.createRange();
  const left = (from) => {
    range.setStart(wrong, from);
    range.setEnd(wrong, from + 1);
    return range.getBoundingClientRect().left;
  };
  return left(wrong.data.indexOf("^")) - left(wrong.data.lastIndexOf("amuont"));
}"""
"""The horizontal distance of the caret from the word that it marks."""


@pytest.fixture
def service() -> Iterator[Several]:
    """A service with a running job, an ended one, a restarting one, a failed one, and a refused file."""
    job = scene.job()
    monitors = {"works": scene.lively(job), "first": jobs.new(), "again": jobs.new(), "troubled": scene.troubled(job)}
    with jobs.several(**monitors) as made:
        for name in ("first", "again"):
            jobs.failing(made.members[Path(f"jobs/{name}.yaml")], 3)
        jobs.starting(made.members[Path("jobs/again.yaml")])
        yield made


@pytest.fixture
def port(service: Several) -> Iterator[int]:
    """The port of the service's pages."""
    with StatusServer(SeveralPages(service), "127.0.0.1", 0, Guard()) as server:
        yield server.port


@pytest.mark.parametrize("path", ["", "jobs/first/", "jobs/broken/"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_they_fit_and_can_be_read(
    browser: Browser, port: int, width: int, scheme: Literal["light", "dark"], path: str
) -> None:
    """Nothing is wider than the window, and every text has enough contrast."""
    page = browser.new_page(viewport={"width": width, "height": 600}, color_scheme=scheme)
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.goto(f"http://127.0.0.1:{port}/{path}")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"jobs-{path.replace('/', '')}-{width}-{scheme}.png", full_page=True)
    assert texts_that_fit_and_stand_out(page, width)
    assert not complaints
    page.close()


def test_the_overview_compares_the_jobs_and_leads_to_each(browser: Browser, port: int) -> None:
    """The overview shows the same numbers and the errors of each job, with links to its page and back."""
    page = opened(browser, port)
    expect(page.get_by_role("heading", level=1)).to_have_text("All jobs in the folder jobs")
    works = page.locator(".jobs li").first
    for number in ("read", "written", "lag", "last batch", "restarts"):
        expect(works.get_by_text(number, exact=True)).to_be_visible()
    expect(page.locator(".jobs li").nth(2)).to_contain_text("restarting for the 3rd time; it last ended because")
    assert page.evaluate(CARET) == pytest.approx(0, abs=1)
    for name, says in (("works", "order_payments"), ("first", "no answer from Kafka"), ("broken", "amuont")):
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name if name != "works" else "orders-payments")
        expect(page.get_by_role("main")).to_contain_text(says)
        page.get_by_role("link", name="all jobs").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("All jobs")
    page.close()


def test_the_overview_follows_the_jobs_and_stands_still_if_told_to(
    browser: Browser, port: int, service: Several
) -> None:
    """The overview shows changes by itself, and does not change while it is paused."""
    page = opened(browser, port)
    del service.members[Path("jobs/troubled.yaml")]
    expect(page.locator(".jobs li")).to_have_count(4, timeout=20_000)
    page.get_by_role("button", name="pause").press("Space")
    service.refused.clear()
    with pytest.raises(AssertionError):
        expect(page.locator(".jobs li")).to_have_count(3, timeout=3_000)
    page.get_by_role("button", name="resume").press("Space")
    expect(page.locator(".jobs li")).to_have_count(3, timeout=20_000)
    page.close()


def test_the_page_of_a_job_follows_its_end_and_its_return(browser: Browser, port: int, service: Several) -> None:
    """While the job is stopped, its page shows the reason without links of a running job, and then continues."""
    page = opened(browser, port, "jobs/works/")
    expect(page.get_by_role("link", name="explain", exact=True)).to_be_visible()
    jobs.failing(service.members[Path("jobs/works.yaml")], 1)
    expect(page.get_by_role("status")).to_have_text("failed", timeout=20_000)
    expect(page.get_by_role("main")).to_contain_text("It is restarted in")
    expect(page.get_by_role("link", name="explain", exact=True)).to_have_count(0)
    jobs.starting(service.members[Path("jobs/works.yaml")])
    expect(page.get_by_role("status")).to_have_text("running", timeout=20_000)
    expect(page.get_by_role("link", name="explain", exact=True)).to_be_visible()
    page.close()


def opened(browser: Browser, port: int, path: str = "") -> Page:
    """Return a page in a window of usual size."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(f"http://127.0.0.1:{port}/{path}")
    return page
