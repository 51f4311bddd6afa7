"""The documentation site builds without a warning and loads nothing from other hosts."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.require import needing

REPOSITORY = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium")
LOADED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*(?:src|href)=["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built in strict mode: a broken link or anchor fails it."""
    folder = tmp_path_factory.mktemp("site")
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stdout + build.stderr
    return folder


@pytest.mark.slow
def test_every_document_is_a_page(site: Path) -> None:
    """Each Markdown file below docs, and the documents of the root that the hook adds."""
    documents = {path.relative_to(REPOSITORY / "docs") for path in REPOSITORY.glob("docs/**/*.md")}
    pages = {path.relative_to(site).with_suffix(".md") for path in site.glob("**/*.html")}
    root = {Path(name) for name in ("index.md", "changelog.md", "contributing.md", "security.md")}
    assert pages - {Path("404.md")} == documents | root


@pytest.mark.slow
def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    """No font, script, style or picture: the site works offline and reports no reader."""
    for page in site.glob("**/*.html"):
        assert LOADED.findall(page.read_text(encoding="utf-8")) == [], page.name


@pytest.mark.slow
@needing(CHROMIUM, "Chromium is not installed")
def test_the_search_works_from_the_file_system(site: Path, tmp_path: Path) -> None:
    """A page that is opened from disk finds a word of another page, without a web server."""
    page = subprocess.run(
        [
            CHROMIUM or "",
            *("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"),
            # A page of the file system may read no other one; virtual time ends when nothing waits.
            *("--virtual-time-budget=60000", "--dump-dom"),
            f"{(site / 'index.html').as_uri()}?q=EsgGpuUnhealthy",
        ],
        capture_output=True, text=True, check=True, timeout=300,
    ).stdout  # fmt: skip
    links = re.findall(r'<a href="([^"]*)" class="md-search-result__link"', page)
    assert any("runbooks.html" in link for link in links), links
