"""Debian's Chromium, and a health server with the live page in a thread."""

import asyncio
import shutil
import threading
from contextlib import contextmanager
from functools import partial

import pytest
from playwright.sync_api import sync_playwright
from pydantic_core import to_json

from scheduler.server.health_server import HealthServer, HealthSource

CHROMIUM = shutil.which("chromium")


@contextmanager
def page_server(documents):
    """Serve the page over documents by path; those of a path with a slash are by name."""

    async def text(parts):
        for part in parts:
            yield part

    source = HealthSource(
        fatal_error=lambda: "",
        not_ready_reason=lambda: "",
        exposition=partial(text, [b"a 1\n"]),
        documents={
            path: partial(documents.__getitem__, path)
            for path in documents
            if not path.endswith("/") and path != "/v1/gpus"
        },
        lookups={path: documents[path].get for path in documents if path.endswith("/")},
        reports={"/v1/gpus": lambda: text([to_json(documents["/v1/gpus"])])},
        has_page=True,
    )
    loop, ready, stop, ports = asyncio.new_event_loop(), threading.Event(), asyncio.Event(), []

    async def serve():
        server = HealthServer(source, ("127.0.0.1", 0), lambda _: None)
        async with server.running():
            ports.append(server.port)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


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
    for each in visits:
        each.page.close()
