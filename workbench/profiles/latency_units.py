"""Units of latencies in the columns of measurements."""

import re
from typing import Literal, get_args

from workbench.profiles.measured_numbers import number

Unit = Literal["ns", "us", "ms", "s"]
UNITS: tuple[Unit, ...] = get_args(Unit)
_MS: dict[Unit, float] = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
_SPELLINGS: dict[str, Unit] = {
    **{unit: unit for unit in UNITS},
    "nsec": "ns",
    "usec": "us",
    "µs": "us",
    "μs": "us",
    "msec": "ms",
    "sec": "s",
}
_LAST_WORD = re.compile(r"(?:^|[\s_([])([a-zµμ]+)[)\]]?$")


def unit_of(column: str) -> Unit | None:
    """Return the unit at the end of a column's name, as in ``latency_ms`` or ``Latency (us)``."""
    match = _LAST_WORD.search(column)
    return None if match is None else _SPELLINGS.get(match[1])


def to_ms(text: str, unit: Unit) -> str:
    """Convert a number in that unit to ms; other text stays as it is."""
    value = number(text)
    return text if value is None or unit == "ms" else f"{value * _MS[unit]:.12g}"
