"""Numbers in the text of measurements."""

import re
from math import inf, isfinite

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def number(text: str) -> float | None:
    """Parse a finite decimal number; None for any other text, infinity and NaN included."""
    value = float(text) if _NUMBER.fullmatch(text) else inf
    return value if isfinite(value) else None
