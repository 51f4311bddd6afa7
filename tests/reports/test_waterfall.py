"""Waterfall plots: small PNGs whose rows end at what is paid."""

import pytest
from matplotlib.figure import Figure

from tests.reports.comparisons import split
from workbench.reports.waterfall import draw_waterfalls, waterfalls_png

SIZE_MAX_BYTES = 150_000


def test_parts_lie_end_to_end():
    """A negative part goes back; the outline of the last one begins where the payment ends."""
    row = split("warm")
    axes = Figure().subplots()
    draw_waterfalls(axes, [row], {name: "black" for name, _ in row.parts}, ink="black")
    boxes = [bar.get_bbox() for bar in axes.patches]
    end = 0.0
    for box, (_, size) in zip(boxes, row.parts, strict=True):
        assert sorted((box.x0, box.x1)) == sorted((end, end + size))
        end += size
    (text,) = axes.texts
    assert text.get_text() == " 1.86"


@pytest.mark.slow
def test_a_figure_is_a_small_png_and_the_same_each_time():
    panels = {"reserved": [split("strict-light"), split("relaxed")], "pooled": [split("x")]}
    png = waterfalls_png(panels, "paid over the limit")
    assert png.startswith(b"\x89PNG")
    assert len(png) < SIZE_MAX_BYTES
    assert png == waterfalls_png(panels, "paid over the limit")
