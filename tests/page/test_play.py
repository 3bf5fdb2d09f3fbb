"""`rowkind play` in a browser: editing, errors in place, the steps of a change, examples, and links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from rowkind.service.web.play.server import PlayServer, examples
from rowkind.service.web.play.worker import Worker
from tests.docs.hooks import hook
from tests.page.test_browser import CONTRASTS, LEAST_CONTRAST, SHOTS

SECONDS = 30_000
"""The patience for a result, in ms: the first one also starts the worker."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of the page."""
    with Worker(Path("job.yaml"), 60) as worker, PlayServer(examples(), worker, 0) as server:
        yield f"http://127.0.0.1:{server.port}/"


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page with the result of its first example; afterwards no request has gone to another server."""
    page = browser.new_page(viewport={"width": 1300, "height": 1000})
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    expect(rows(page, "result")).to_have_count(9, timeout=SECONDS)
    yield page
    assert not [url for url in asked if not url.startswith((address, "data:"))]
    assert not complaints
    page.close()


def rows(page: Page, table: Literal["result", "rows"]) -> Locator:
    """Return the rows of the table with the changes or with the remaining rows."""
    return page.locator(f"#{table} tbody tr")


def edit(page: Page, editor: str, before: str, after: str) -> None:
    """Replace a part of an editor's text, and type the last character."""
    box = page.locator(f"#{editor}")
    text = box.input_value()
    assert before in text
    begin = text.replace(before, after[:-1], 1)
    place = text.index(before) + len(after) - 1
    box.evaluate(
        "(each, [text, place]) => { each.value = text; each.setSelectionRange(place, place); }", [begin, place]
    )
    box.focus()
    page.keyboard.type(after[-1])


def test_the_result_follows_what_is_typed(page: Page) -> None:
    """An edit of the SQL, and one of the changes, change the result and the plan."""
    edit(page, "job", "LEFT JOIN", "INNER JOIN")
    expect(rows(page, "result")).to_have_count(3, timeout=SECONDS)
    expect(page.locator("#plan")).to_contain_text("INNER JOIN")
    edit(page, "changes", '"Bob"', '"Eve"')
    expect(page.locator("#rows")).to_contain_text("Eve", timeout=SECONDS)


def test_errors_are_shown_in_place(page: Page) -> None:
    """An error in the SQL or in a change appears below its text, with its line, and disappears when it is fixed."""
    edit(page, "job", "p.paid\n", "p.payd\n")
    error = page.locator("#error\\.job")
    expect(error).to_contain_text("line 16: sinks.order_payments.sql: p has no column payd", timeout=SECONDS)
    expect(page.locator("#job").locator("xpath=..").locator(".lines .bad")).to_have_text("16")
    edit(page, "job", "p.payd\n", "p.paid\n")
    expect(error).to_be_hidden(timeout=SECONDS)
    edit(page, "changes", '"+I", "row": {"order_id": 2', '"+J", "row": {"order_id": 2')
    expect(page.locator("#error\\.changes")).to_contain_text("line 2: op '+J' is not allowed", timeout=SECONDS)
    expect(page.locator("#changes").locator("xpath=..").locator(".lines .bad")).to_have_text("2")


def test_a_change_shows_the_steps_that_caused_it(page: Page) -> None:
    """With the keyboard, a change is chosen: its line and the steps that emitted changes are marked, with numbers."""
    page.locator("#result tbody button").nth(2).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#result tr.chosen")).to_have_count(2)
    expect(page.locator(".lines .cause")).to_have_text("3")
    assert page.locator("article.marked header b").all_inner_texts() == ["join_1", "normalize_1", "scan_p"]
    expect(page.locator("article.join .emitted")).to_have_text("+1 \u22121 emitted")
    page.keyboard.press("Enter")
    expect(page.locator("article.marked")).to_have_count(0)


def test_an_example_and_a_sink_are_chosen(page: Page) -> None:
    """The menu shows another example, and a job with several sinks has a menu of its sinks."""
    page.get_by_label("Example").select_option("EXISTS: orders with and without a payment")
    expect(rows(page, "result")).to_have_count(4, timeout=SECONDS)
    expect(page.locator("#job")).to_have_value(examples()[1].job)
    page.get_by_label("Sink").select_option("paid_orders")
    expect(page.locator("#plan")).to_contain_text("paid_orders", timeout=SECONDS)
    expect(rows(page, "result")).to_have_count(2)


def test_a_link_has_the_job_and_the_changes(page: Page, browser: Browser) -> None:
    """The address of the page shows the same job, changes and sink in another window."""
    page.get_by_label("Example").select_option("EXISTS: orders with and without a payment")
    edit(page, "changes", '"Ada"', '"Zoë"')
    page.get_by_label("Sink").select_option("paid_orders")
    expect(page.locator("#plan")).to_contain_text("paid_orders", timeout=SECONDS)
    other = browser.new_context().new_page()
    other.goto(page.url)
    expect(other.locator("#result")).to_contain_text("Zoë", timeout=SECONDS)
    for editor in ("#job", "#changes", "#sink"):
        assert other.locator(editor).input_value() == page.locator(editor).input_value()
    other.context.close()


def test_a_link_of_the_docs_opens_its_example(page: Page, address: str) -> None:
    """The page reads the fragment that the hook of the documentation site writes."""
    shown = examples()[3]
    fragment = hook("play").link(shown.job, shown.changes).partition("#")[2]
    page.goto(f"{address}#{fragment}")
    expect(page.locator("#job")).to_have_value(shown.job)
    expect(page.locator("#changes")).to_have_value(shown.changes)


def test_a_broken_link_shows_an_example(page: Page, address: str) -> None:
    """If the fragment cannot be read, the page says so and shows its first example."""
    page.goto(f"{address}#abc")
    expect(page.locator("#state")).to_have_text("The link is incomplete")
    expect(page.locator("#job")).to_have_value(examples()[0].job)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300, 1600])
def test_it_fits_and_can_be_read(page: Page, width: int, scheme: Literal["light", "dark"]) -> None:
    """With a chosen change and with an error, nothing is wider than the window, and every text has enough contrast."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 1000})
    page.locator("#result tbody button").nth(2).click()
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"play-{width}-{scheme}.png", full_page=True)
    for part in ("fine", "wrong"):
        if part == "wrong":
            edit(page, "job", "p.paid\n", "p.payd\n")
            expect(page.locator("#error\\.job")).to_be_visible(timeout=SECONDS)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        contrasts: dict[str, float] = page.evaluate(CONTRASTS)
        assert not {text: ratio for text, ratio in contrasts.items() if ratio < LEAST_CONTRAST}
