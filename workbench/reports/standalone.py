"""A figure as a file of its own, for documents in Markdown, which show it as an image."""

import re

from workbench.reports.writing import written

_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_HEAD = re.compile(r"\A<svg ([^>]*)>")


def standalone(svg: str) -> str:
    """What `Drawing.svg` gives, with the page's colours and font in it, for light and for dark."""
    head = _HEAD.search(svg)
    size = _SIZE.search(svg)
    if head is None or size is None:
        raise ValueError("no figure that a drawing made")
    width, height = (round(float(length)) for length in size.groups())
    return written(
        "figure.svg.j2",
        head=f'width="{width}" height="{height}" {head[1]}',
        drawn=svg[head.end() :],
    )
