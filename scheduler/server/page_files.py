"""Files of the live page, and the headers that keep it to itself.

The page is read-only and takes nothing from another host: its policy allows only files and
documents of the port that served it, and no other page may frame it.
"""

from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).with_name("page")
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)


class PageFile(NamedTuple):
    """One file of the page."""

    content_type: str
    content: bytes


def read_page() -> dict[str, PageFile]:
    """Return the files of the page by path; the page itself is ``/``."""
    files = {
        f"/{path.name}": PageFile(_TYPES[path.suffix], path.read_bytes())
        for path in FOLDER.iterdir()
    }
    return {"/": files.pop("/index.html"), **files}
