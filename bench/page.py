"""The live page over 1,000 nodes of 8 GPUs: time until it is drawn, bytes, CPU time of the server.

    python -m bench.page [--minutes 1]

The extender runs in a process of its own over a played cluster whose GPUs are half full. A health
process as the gateway's serves the page, and Debian's Chromium shows the view of all GPUs. The CPU
time is that of the extender and of both health processes.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil
from playwright.sync_api import Request, sync_playwright

from bench.service import serving
from bench.thresholds import check_ranges
from tests.page.cluster import played
from tests.page.served import page_server
from workbench.cluster.process import free_port

NODES, GPUS = 1_000, 8
PODS = NODES * GPUS
VISITS = 5
DRAWN_NODES = 20
_PAINT_MS = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> int:
    """Measure, print and compare with the range."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="time of the updates")
    seconds = 60 * parser.parse_args().minutes
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("error: Debian's package chromium is needed; install it")
    port, health_port = free_port(), free_port()
    environment = {"ESG_PAGE": "true", "ESG_HEALTH_PORT": str(health_port)}
    documents = {"/v1/overview": played()["/v1/overview"]}  # type: ignore[no-untyped-call]
    with (
        serving(NODES, GPUS, PODS, port, environment) as service,
        page_server(documents, f"http://127.0.0.1:{health_port}") as gateway,
    ):
        url = f"{gateway}/#gpus"
        # The extender and the gateway's health process are children of this one.
        servers = [*psutil.Process().children(), *psutil.Process(service.pid).children()]
        figures = _measured(url, servers, seconds, chromium)
    return check_ranges("page", figures)


def _measured(
    url: str, servers: Sequence[psutil.Process], seconds: float, chromium: str
) -> dict[str, float]:
    """Visit the page, print what it took, and return the figures with a range."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        visits = [_visit(browser, url) for _ in range(VISITS)]
        idle_percent = _cpu_percent(servers, seconds)
        page = browser.new_page()
        page.goto(url)
        page.locator("section.node").nth(DRAWN_NODES - 1).wait_for()
        visited_percent = _cpu_percent(servers, seconds, page)
        browser.close()
    paint_ms, drawn_ms, answer_bytes = (
        sorted(column)[VISITS // 2] for column in zip(*visits, strict=True)
    )
    update_percent = visited_percent - idle_percent
    print(f"{NODES:,} nodes, {NODES * GPUS:,} GPUs; medians of {VISITS} visits")
    print(f"first paint {paint_ms:.0f} ms, all drawn {drawn_ms:.0f} ms after the request")
    print(f"answer of all GPUs: {answer_bytes / 1024:,.0f} KiB, compressed")
    print(f"CPU of a core: {visited_percent:.2f} % with a visitor, {idle_percent:.2f} % without")
    return {"answer_kib": answer_bytes / 1024, "update_percent": update_percent}


def _visit(browser: Any, url: str) -> tuple[float, float, int]:
    """Return the times of first paint and of the drawn view, ms, and the bytes of the answer."""
    page = browser.new_page()
    sizes: list[int] = []

    def finished(request: Request) -> None:
        if request.url.endswith("/v1/gpus"):
            sizes.append(request.sizes()["responseBodySize"])

    page.on("requestfinished", finished)
    began_s = time.perf_counter()
    page.goto(url)
    page.locator("section.node").nth(DRAWN_NODES - 1).wait_for()
    drawn_ms = 1000 * (time.perf_counter() - began_s)
    paint_ms = page.evaluate(_PAINT_MS)
    page.close()
    return paint_ms, drawn_ms, sizes[0]


def _cpu_percent(processes: Sequence[psutil.Process], seconds: float, page: Any = None) -> float:
    """Return the CPU time of processes over a time, in percent of a core."""

    def cpu_s() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    before_s = cpu_s()
    if page is None:
        time.sleep(seconds)
    else:
        page.wait_for_timeout(1000 * seconds)
    return 100 * (cpu_s() - before_s) / seconds


if __name__ == "__main__":
    sys.exit(main())
