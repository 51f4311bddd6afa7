"""MkDocs hook: pages of the site from documents in the root of the repository.

These documents link to one another relative to the root, as GitHub expects it. Links to pages of
the site are rewritten, all other relative links go to the repository.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def site_link(target: str, repository: str) -> str:
    """Return the link to a path of the repository as seen from the root of the site."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith("docs/") and (ROOT / target).is_file():
        return target.removeprefix("docs/")
    if not (ROOT / target).exists():
        return target  # the strict build reports it
    return f"{repository}/blob/main/{target}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents of the root to the pages of the site."""
    repository = config.extra["repository"]
    for name, page in PAGES.items():
        text = LINK.sub(
            lambda match: f"]({site_link(match[1], repository)}",
            (ROOT / name).read_text(encoding="utf-8"),
        )
        files.append(File.generated(config, page, content=text))
    return files
