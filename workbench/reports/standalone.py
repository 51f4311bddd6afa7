"""A figure as a file of its own, for documents in Markdown, which show it as an image."""

import re

from workbench.reports.writing import render

_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_HEAD = re.compile(r"\A<svg ([^>]*)>")


def standalone(svg: str) -> str:
    """Wrap the output of `Drawing.svg` with colours and font, for light and dark."""
    head = _HEAD.search(svg)
    size = _SIZE.search(svg)
    if head is None or size is None:
        raise ValueError("not the output of Drawing.svg")
    width, height = (round(float(length)) for length in size.groups())
    return render(
        "figure.svg.j2",
        head=f'width="{width}" height="{height}" {head[1]}',
        drawn=svg[head.end() :],
    )
