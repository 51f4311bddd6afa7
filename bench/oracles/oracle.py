"""An oracle: a published figure, the run that repeats it, and the comparison."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of the report.

    Attributes:
        text: names what is compared, without the oracle's number.
        holds: the run is within the tolerance.
    """

    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Oracle:
    """A published result.

    Attributes:
        number: of the oracle, in the order of docs/jobs.md.
        title: policy, environment and workload in a few words.
        compare: yields a line for each part; None: not implemented.
        reason: why not.
    """

    number: int
    title: str
    compare: Callable[[Path], Iterator[Comparison]] | None = None
    reason: str = "not implemented"


def exact(what: str, mean_s: float, expected_s: float, digits: int = 8) -> Comparison:
    """Compare to the printed digits."""
    holds = round(mean_s, digits) == round(expected_s, digits)
    return Comparison(f"{what}: {mean_s:.12g} {'=' if holds else '≠'} {expected_s:.12g}", holds)


def near(what: str, mean_s: float, expected_s: float, tolerance_ratio: float) -> Comparison:
    """Compare with a relative tolerance."""
    difference_ratio = mean_s / expected_s - 1
    holds = abs(difference_ratio) <= tolerance_ratio
    return Comparison(
        f"{what}: {mean_s:.8g} {'≈' if holds else '≠'} {expected_s:.8g} "
        f"({100 * difference_ratio:+.1f} %, ±{100 * tolerance_ratio:g} %)",
        holds,
    )


def order(what: str, names: list[str], values: list[float]) -> Comparison:
    """Compare values that must rise."""
    holds = all(low < high for low, high in pairwise(values))
    text = " < ".join(f"{n} {v:.5g}" for n, v in zip(names, values, strict=True))
    return Comparison(f"{what}: {text}{'' if holds else ' does not hold'}", holds)
