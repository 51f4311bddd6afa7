"""Matplotlib figures as inline SVG, in the page's colours and font.

Each colour is drawn as a sentinel that becomes a CSS variable, so that one figure is readable on
light and dark pages. The same figure gives the same bytes, whatever the user's matplotlib style is.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.figure import Figure

WIDTH_IN = 10.0  # 720 units: text of 11 units is then about as large as the page's

INK, SOFT, LINE, BAND, FIRST, SECOND, SELECTED = (f"#0102{n:02x}" for n in range(7))
"""Text, secondary text, rules, background areas, first series, second series, selection."""

SERIES = (FIRST, SECOND, SELECTED, *(f"#0102{n:02x}" for n in range(7, 12)))
"""Colours of lines."""

_VARIABLES = {
    **{colour: f"var(--series{n})" for n, colour in enumerate(SERIES[3:], start=4)},
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    LINE: "var(--line)",
    BAND: "var(--band)",
    FIRST: "var(--first)",
    SECOND: "var(--second)",
    SELECTED: "var(--selected)",
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and copied
    "text.parse_math": False,
    "font.size": 11.0,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
_PREAMBLE = re.compile(r"\A.*?(?=<svg)|<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_HEAD = re.compile(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>')
_OWN_FONT = re.compile(r"font-family: [^;\"]*(; )?")
_UNUSED_ID = re.compile(
    r' id="(?![pm][0-9a-f]{10}")[^"]*"'
)  # except those of clip paths and markers


@contextmanager
def house_style(style: dict[Any, Any] = _STYLE) -> Iterator[None]:
    """Apply the style in which all figures are drawn and written, or another one."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(style)
        yield


class Drawing:
    """A figure with tooltips."""

    def __init__(self, height_inches: float) -> None:
        self.figure = Figure(figsize=(WIDTH_IN, height_inches), layout="constrained")
        self._tooltips: dict[str, str] = {}

    def say(self, artist: Artist, text: str) -> None:
        """Set an artist's tooltip; the text is escaped."""
        part = f"part-{len(self._tooltips)}"
        self._tooltips[part] = text
        artist.set_gid(part)

    def svg(self, name: str, label: str) -> str:
        """Return the figure as an element.

        Args:
            name: name of the figure, unique on the page.
            label: description for readers who cannot see the figure.
        """
        mpl.rcParams["svg.hashsalt"] = name
        written = StringIO()
        self.figure.savefig(written, format="svg", metadata=_NO_METADATA)
        text = _PREAMBLE.sub("", written.getvalue()).replace("xlink:href", "href")
        text = _OWN_FONT.sub("", text)
        for colour, variable in _VARIABLES.items():
            text = text.replace(colour, variable)
        for part, tooltip in self._tooltips.items():
            text = text.replace(f'<g id="{part}">', f"<g><title>{escape(tooltip)}</title>")
        head, drawn = _HEAD.split(_UNUSED_ID.sub("", text), maxsplit=1)[1:]
        return f'<svg {head} role="img" aria-label="{escape(label)}">{drawn}'
