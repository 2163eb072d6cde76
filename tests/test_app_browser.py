"""The app in a real browser: it ranks, the picture follows the temperature, and nothing leaves the machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, app_home: Path, app_checkpoints: Path) -> Iterator[str]:
    """Address of a running app on the tiny backbone and a checkpoint for it."""
    machine = {"SPD_HOME": str(app_home), "SPD_CHECKPOINTS": str(app_checkpoints)}
    with served(machine, tmp_path_factory.mktemp("server") / "log.txt") as address:
        yield address


@contextmanager
def served(machine: Mapping[str, str], log_file: Path) -> Iterator[str]:
    """Address of an app that runs with these environment variables; its log must hold no traceback in the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    with log_file.open("w+") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | machine, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield wait_until_up(f"http://127.0.0.1:{port}", process)
            log.seek(0)
            assert "Traceback" not in log.read()
        finally:
            process.terminate()
            process.wait(timeout=120)


def wait_until_up(address: str, process: subprocess.Popen[bytes]) -> str:
    """`address`, once the server there says that it is healthy."""
    for _ in range(240):
        assert process.poll() is None, "the server ended before it was up"
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2):
                return address
        except OSError:
            time.sleep(0.5)
    raise AssertionError("the server did not come up within two minutes")


def wait_until_quiet(page: Page) -> None:
    """Wait until the script of the page has run to its end."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=PATIENCE_MS)


def picture(page: Page) -> bytes:
    """Screenshot of the heatmap once two of them in a row are equal."""
    chart = page.locator("[data-testid=stVegaLiteChart]").first
    expect(chart.locator("svg, canvas").first).to_be_visible()
    before = chart.screenshot()
    for _ in range(20):
        page.wait_for_timeout(400)
        after = chart.screenshot()
        if after == before:
            return after
        before = after
    raise AssertionError("the heatmap never came to rest")


def changed_picture(page: Page, before: bytes) -> bytes:
    """Screenshot of the heatmap at rest, once it differs from `before`; the same one if it never does."""
    for _ in range(60):
        wait_until_quiet(page)
        after = picture(page)
        if after != before:
            return after
        page.wait_for_timeout(1000)
    return before


def test_link_to_a_page_opens_the_whole_app_on_a_fresh_server(server: str, chromium: str) -> None:
    # First in this file on purpose: once the front page was seen, every page opens.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page()
        page.goto(f"{server}/score_matrix?slate=demo-old-coats")
        expect(page.get_by_role("heading", name="Score matrix")).to_be_visible()
        expect(page.get_by_role("link", name="Latency", exact=True)).to_be_visible()
        expect(page.get_by_text("Henrik collects perfumes").first).to_be_visible()
        browser.close()


def test_visitor_ranks_then_moves_the_temperature_and_sees_the_picture_change(server: str, chromium: str) -> None:
    outside, complaints = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", lambda request: outside.append(request.url) if not is_local(request.url, server) else None)
        page.on("console", lambda entry: complaints.append(entry.text) if entry.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))

        page.goto(server)
        expect(page.get_by_role("heading", name="Rank", exact=True)).to_be_visible()
        expect(page.get_by_role("heading", name="What Amara O. bought next is ranked")).to_be_visible()
        expect(page.locator("[data-testid=stTable]").first.locator("tbody tr")).to_have_count(10)

        page.get_by_role("link", name="Score matrix").click()
        expect(page.get_by_role("heading", name="Score matrix")).to_be_visible()
        wait_until_quiet(page)
        before, residual = picture(page), page.get_by_text("Sinkhorn residual").inner_text()
        slider = page.get_by_role("slider", name="Temperature")
        slider.focus()
        for _ in range(6):
            slider.press("ArrowLeft")  # colder: the residual grows and the picture sharpens
        expect(page.get_by_text("Sinkhorn residual")).not_to_have_text(residual)
        assert changed_picture(page, before) != before

        # The cells are drawn in data order, ten a candidate in input order: the 3rd candidate at the 4th position.
        page.locator("[data-testid=stVegaLiteChart] .mark-rect").first.locator("path").nth(2 * 10 + 3).click()
        expect(page.get_by_text("at the 4th place")).to_be_visible()
        browser.close()
    assert outside == []
    assert complaints == []


def test_hostile_titles_stay_text_in_the_browser(server: str, chromium: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        for slate in ("tricky-markup", "tricky-hostile-ranking-text"):
            page.goto(f"{server}/?shelf=tricky&slate={slate}")
            expect(page.locator("[data-testid=stTable]").first.locator("tbody tr")).to_have_count(6)
            made = "[data-testid=stTable] :is(a, img, .katex, script, iframe, h1, code)"
            assert page.locator(made).count() == 0
        browser.close()


def is_local(url: str, server: str) -> bool:
    """Whether a request stays on this machine."""
    return url.startswith((server, server.replace("http", "ws"), "data:", "blob:"))
