"""Debian's Chromium, and visits of the live page."""

import shutil

import pytest
from playwright.sync_api import sync_playwright

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="session")
def browser():
    """Run Chromium without a window."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


class Visit:
    """A visit of the page: what it asked for, and what its console said."""

    def __init__(self, browser, url, **options):
        self.page = browser.new_page(**options)
        self.requests, self.problems = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self._url = url

    def _note(self, kind, text):
        if kind in {"error", "warning"}:
            self.problems.append(text)

    def view(self, name):
        """Open a view, and return its text."""
        self.page.goto(f"{self._url}/#{name}")
        self.page.reload()
        self.page.locator("html[data-view]").wait_for(state="attached")
        return self.page.locator("main").inner_text()

    @property
    def is_as_wide_as_the_window(self):
        """True if nothing but tables scrolls sideways."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )


@pytest.fixture
def visit(browser):
    """Return a function that opens the page at a URL."""
    visits = []

    def opened(url, **options):
        visits.append(Visit(browser, url, **options))
        return visits[-1]

    yield opened
    for visited in visits:
        visited.page.close()
