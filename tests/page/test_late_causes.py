"""The cause of a late request on the page: a real call of each cause, in Chromium."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler.gateway import call_report
from tests.gateway.late_calls import SCENES, report_of
from tests.gateway.runtime_bed import bed
from tests.page import cluster
from tests.page.conftest import CHROMIUM
from tests.page.served import page_server
from tests.require import needing

pytestmark = [pytest.mark.slow, needing(CHROMIUM, "needs Debian's package chromium")]


async def played(scene):
    """Return the report of a late call."""
    async with bed() as running:
        await scene(running)
        return report_of(running)


@pytest.fixture(scope="module")
def reports():
    """Reports by cause; Playwright has the event loop of this thread."""
    with ThreadPoolExecutor(1) as thread:
        return {
            scene.__name__: thread.submit(asyncio.run, played(scene)).result() for scene in SCENES
        }


def test_each_cause_is_on_the_page(visit, reports):
    """In the list and in the view of the request, in words, with a bar by stage."""
    documents = cluster.played() | {
        "/v1/requests": list(reports.values()),
        "/v1/requests/": {report["id"]: report for report in reports.values()},
    }
    with page_server(documents) as url:
        visited = visit(url)
        lines = visited.view("late")
        for cause, report in reports.items():
            words = call_report.CAUSES[cause]
            assert words in lines
            assert f"Cause: {words}" in visited.view(f"late/{report['id']}")
            assert visited.page.locator(".deadlines").count() == 1
