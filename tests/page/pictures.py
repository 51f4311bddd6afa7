"""Pictures of the live page for the documentation: ``python -m tests.page.pictures FOLDER``."""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.page import cluster
from tests.page.conftest import CHROMIUM, Visit
from tests.page.served import page_server

PICTURES = (
    ("page-overview", "overview", "light", 1100, 420),
    ("page-gpus", "gpus", "dark", 1100, 420),
    ("page-plan", "plan/vision:street", "light", 1100, 900),
    ("page-late", "late/0badcafe-1", "light", 1100, 560),
)


def draw(folder: Path) -> None:
    """Write the pictures."""
    with page_server(cluster.played()) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, view, scheme, width, height in PICTURES:
            size = {"width": width, "height": height}
            visited = Visit(browser, url, color_scheme=scheme, viewport=size)
            visited.view(view)
            visited.page.screenshot(path=folder / f"{name}.png")
            visited.page.close()
        browser.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
