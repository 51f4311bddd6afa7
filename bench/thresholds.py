"""Comparison of a benchmark's figures with its range file.

``bench/ranges/NAME.json`` maps each figure to ``{"measured": x, "min": y, "max": z}``: the value
when the range was set, and its bounds. Both bounds are optional.
"""

import json
import sys
from collections.abc import Mapping
from math import inf
from pathlib import Path

RANGES = Path(__file__).parent / "ranges"


def check_ranges(name: str, figures: Mapping[str, float]) -> int:
    """Print every figure that is out of its range; return 1 if there is one, else 0."""
    ranges = json.loads((RANGES / f"{name}.json").read_text(encoding="utf-8"))
    status = 0
    for figure, value in figures.items():
        bounds = ranges.get(figure, {})
        low, high = bounds.get("min", -inf), bounds.get("max", inf)
        if bounds and not low <= value <= high:  # also what is no number
            print(
                f"out of range: {figure} is {value:.3g}; expected "
                f"{low} to {high}, measured {bounds['measured']} when the range was set",
                file=sys.stderr,
            )
            status = 1
    return status
