"""The race in a real browser, on the trained student and teacher: to its end, cancelled, and once more."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import ConsoleMessage, Locator, Page, TimeoutError, expect, sync_playwright
from test_app_browser import FLAGS, PATIENCE_MS, is_local, served, wait_until_quiet

from spd_core.teacher_checkpoints import list_teachers

pytestmark = [pytest.mark.browser, pytest.mark.model, pytest.mark.timeout(1200)]
RACE_MS = 3 * PATIENCE_MS
"""Two models are loaded and write; a machine that is busy with other things must not fail it."""
CLICK_MS = 10_000
SIDES = "checkpoint=beauty-spd&teacher=constrained-beauty-teacher"
SHORT, COUNT = "shopper-07-visit-2-n8", 8
LONG, LONG_COUNT = ("Blessing A., visit 1", "Lupe F., visit 1", "Nadia K., visit 1", "Gus M., visit 1"), 50
"""To be cancelled: 50 passes leave time for a click, mostly. Where one was over before the click, the next is tried."""


CANCELLED = re.compile(rf"Cancelled when [1-9][0-9]* of {LONG_COUNT} candidates were named")


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """Longer waits than in other browser tests."""
    expect.set_options(timeout=RACE_MS)
    yield
    expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def race_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an app with the shipped checkpoints."""
    if not any(info.checkpoint_id == "beauty-teacher" and info.config for info in list_teachers()):
        pytest.skip("no checkpoint beauty-teacher; train it: python -m spd_core train --role teacher")
    with served({}, tmp_path_factory.mktemp("server") / "log.txt") as address:
        yield address


def is_complaint(entry: ConsoleMessage) -> bool:
    """Whether a console message tells of a defect; on a link to a page Streamlit looks for its server there first."""
    return entry.type == "error" and "/teacher_vs_student/_stcore/" not in entry.location["url"]


def race(page: Page) -> None:
    page.get_by_role("button", name="Race", exact=True).click()


def cancel_a_race(page: Page, first_named: Locator) -> None:
    """Start a race and cancel it once the teacher has named one; another slate's where it was over before the click."""
    over = page.get_by_role("heading", name="What the teacher wrote")
    for start_of_title in LONG:
        choose(page, start_of_title)
        expect(page.get_by_text("Nothing has run yet")).to_be_visible()
        race(page)
        expect(first_named).to_have_text(re.compile(r"^1\s+\w"))
        with contextlib.suppress(TimeoutError):
            page.get_by_role("button", name="Cancel", exact=True).dispatch_event("click", timeout=CLICK_MS)
        expect(over.or_(page.get_by_text(CANCELLED))).to_be_visible()
        if not over.is_visible():
            return
    pytest.skip(f"{len(LONG)} races were over before Cancel could be clicked: this machine is too fast, or too slow to draw")


def ends(page: Page) -> None:
    """Wait until the rankings are compared."""
    expect(page.get_by_role("heading", name="What the teacher wrote")).to_be_visible()
    wait_until_quiet(page)


def choose(page: Page, start_of_title: str) -> None:
    """Turn to another slate of the shelf."""
    search = page.get_by_role("combobox", name="Shopper and slate")
    search.fill(start_of_title)
    page.get_by_role("option", name=start_of_title).first.click()


def cells(page: Page, side: int) -> Locator:
    """Ranks of the student's (0) or the teacher's (1) list."""
    return page.locator("[data-testid=stColumn]").filter(has_text="Best first").nth(side).locator("tbody tr")


def test_visitor_races_cancels_a_second_race_and_races_again(race_server: str, chromium: str) -> None:
    outside, complaints = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.set_default_timeout(RACE_MS)
        page.on("request", lambda request: None if is_local(request.url, race_server) else outside.append(request.url))
        page.on("console", lambda entry: complaints.append(entry.text) if is_complaint(entry) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))

        page.goto(f"{race_server}/teacher_vs_student?shelf=shoppers&slate={SHORT}&{SIDES}")
        expect(page.get_by_text("Nothing has run yet")).to_be_visible()
        race(page)
        ends(page)
        expect(page.get_by_text("valid as written")).to_be_visible()
        expect(page.get_by_text("n = 1.")).to_be_visible()
        for side in (0, 1):
            expect(cells(page, side)).to_have_count(COUNT)
        expect(page.locator("[data-testid=stVegaLiteChart] :is(svg, canvas)").first).to_be_visible()
        answer = page.get_by_text(re.compile(rf"^\d+(>\d+){{{COUNT - 1}}}$"))
        written = answer.inner_text()

        first_named = cells(page, 1).first
        cancel_a_race(page, first_named)
        expect(page.get_by_text(CANCELLED)).to_be_visible()
        wait_until_quiet(page)
        expect(first_named).to_have_text(re.compile(r"^1\s+\w"))
        expect(page.get_by_text(re.compile(r"^Writes: \d+>"))).to_be_visible()
        expect(page.get_by_role("heading", name="What the teacher wrote")).to_have_count(0)
        expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)

        choose(page, "Blessing A., visit 2")
        expect(page.get_by_text("n = 1.")).to_be_visible()
        race(page)
        expect(page.get_by_text("n = 2, medians")).to_be_visible()
        ends(page)
        expect(answer).to_have_text(written)  # greedy: the same answer every time

        page.get_by_role("link", name="Rank", exact=True).click()
        expect(page.get_by_role("heading", name="Rank", exact=True)).to_be_visible()
        expect(page.locator("[data-testid=stTable]").first.locator("tbody tr")).to_have_count(COUNT)
        browser.close()
    assert outside == []
    assert complaints == []
