"""An oracle: a published figure, the run that repeats it, and the comparison."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from studies.page import percent


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """One figure, or an order of figures.

    Attributes:
        what: text that names what is compared, without the oracle's number.
        expected: published or defined value, with the tolerance.
        holds: true if the run is within the tolerance.
        relation: text between result and expected value in a line.
    """

    what: str
    result: str
    expected: str
    holds: bool
    relation: str = "; expected:"

    @property
    def text(self) -> str:
        """One line of the report."""
        failure = "" if self.holds else " (does not hold)"
        return f"{self.what}: {self.result}{self._glue}{self.expected}{failure}"

    @property
    def _glue(self) -> str:
        return f"{self.relation} " if self.relation.startswith(";") else f" {self.relation} "


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """A published result.

    Attributes:
        number: number of the oracle, in the order of docs/jobs.md.
        title: policy, environment and workload in a few words.
        compare: function that yields a comparison for each part.
    """

    number: int
    title: str
    compare: Callable[[Path], Iterator[PublishedComparison]]


def exact(what: str, mean_s: float, expected_s: float, digits: int = 8) -> PublishedComparison:
    """Compare to the printed digits."""
    holds = round(mean_s, digits) == round(expected_s, digits)
    sign = "=" if holds else "≠"
    return PublishedComparison(what, f"{mean_s:.12g}", f"{expected_s:.12g}", holds, sign)


def equal_count(what: str, count: int, expected: int) -> PublishedComparison:
    """Compare numbers of jobs or cases."""
    holds = count == expected
    return PublishedComparison(what, f"{count:,}", f"{expected:,}", holds, "=" if holds else "≠")


def near(
    what: str, mean_s: float, expected_s: float, tolerance_ratio: float
) -> PublishedComparison:
    """Compare with a relative tolerance."""
    difference_ratio = mean_s / expected_s - 1
    holds = abs(difference_ratio) <= tolerance_ratio
    return PublishedComparison(
        what,
        f"{mean_s:.8g} ({percent(difference_ratio)})",
        f"{expected_s:.8g} ±{100 * tolerance_ratio:g} %",
        holds,
        "≈" if holds else "≠",
    )


def order(
    what: str, names: Sequence[str], values: Sequence[float], published: Sequence[float] = ()
) -> PublishedComparison:
    """Compare values that must rise, in the order of the published ones if there are any."""
    holds = all(low < high for low, high in pairwise(values))
    expected = " < ".join(_named(names, published) if published else names)
    return PublishedComparison(what, ", ".join(_named(names, values)), expected, holds)


def below(what: str, gain_ratio: float, published: str) -> PublishedComparison:
    """Compare a relative difference with 0; its size is not that of the published runs."""
    gain = percent(gain_ratio)
    return PublishedComparison(what, gain, f"below 0; published: {published}", gain_ratio < 0)


def _named(names: Sequence[str], values: Sequence[float]) -> list[str]:
    return [f"{name} {value:.5g}" for name, value in zip(names, values, strict=True)]
