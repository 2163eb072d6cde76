"""The race in a real browser, on the embedded model: to its end, cancelled, and once more."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from test_app_browser import FLAGS, PATIENCE_MS, is_local, served, wait_until_quiet

from spd_core.checkpoint_config import TeacherSettings
from spd_core.teacher_checkpoints import save_teacher, zero_shot_teacher

pytestmark = [pytest.mark.browser, pytest.mark.model, pytest.mark.timeout(1200)]
RACE_MS = 3 * PATIENCE_MS
"""A race takes a second or two; a machine that is busy with ten other things must not fail it."""
SLATE = "shopper-02-visit-1-n5"
"""A small one: five candidates."""


@pytest.fixture(scope="module")
def race_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an app with the embedded backbone, no student's checkpoint, and the backbone as it came for a teacher."""
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    settings = TeacherSettings(lora=None)
    save_teacher(zero_shot_teacher(), checkpoints / "plain-teacher", settings=settings, facts=None, model_card="# Card")
    with served({"SPD_CHECKPOINTS": str(checkpoints)}, tmp_path_factory.mktemp("server") / "log.txt") as address:
        yield address


def race_to_its_end(page: Page) -> None:
    """Press Race and wait until the rankings are compared."""
    page.get_by_role("button", name="Race", exact=True).click()
    expect(page.get_by_role("heading", name="What the teacher wrote")).to_be_visible(timeout=RACE_MS)
    wait_until_quiet(page)


def test_visitor_races_cancels_a_second_race_and_races_again(race_server: str, chromium: str) -> None:
    outside, complaints = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.set_default_timeout(RACE_MS)
        page.on("request", lambda request: None if is_local(request.url, race_server) else outside.append(request.url))
        page.on("console", lambda entry: complaints.append(entry.text) if entry.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))

        page.goto(f"{race_server}/?shelf=shoppers&slate={SLATE}")
        page.get_by_role("link", name="Teacher vs student").click()
        expect(page.get_by_text("Nothing has run yet")).to_be_visible(timeout=RACE_MS)
        race_to_its_end(page)
        expect(page.get_by_text("valid as written")).to_be_visible()
        written = page.get_by_text(re.compile(r"^\d+(>\d+){4}$"))
        expect(written).to_be_visible()
        first_answer = written.inner_text()
        lists = page.locator("[data-testid=stTable]")
        assert [lists.nth(side).locator("tbody tr").count() for side in (0, 1)] == [5, 5]
        expect(page.get_by_text("n = 1.")).to_be_visible()
        expect(page.locator("[data-testid=stVegaLiteChart] :is(svg, canvas)").first).to_be_visible()

        page.get_by_role("button", name="Race", exact=True).click()
        page.get_by_role("button", name="Cancel", exact=True).click()
        expect(page.get_by_text("Cancelled: nothing is kept of that race.")).to_be_visible()
        wait_until_quiet(page)

        race_to_its_end(page)
        expect(page.get_by_text("n = 2, medians")).to_be_visible()
        assert written.inner_text() == first_answer  # greedy: the same answer every time

        page.get_by_role("link", name="Rank", exact=True).click()
        expect(page.locator("[data-testid=stTable]").first.locator("tbody tr")).to_have_count(5)
        browser.close()
    assert outside == []
    assert complaints == []
