"""Points of policies and variants, in one panel per setting."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A policy or a variant in a panel; ``x_error`` and ``y_error`` are half intervals, or 0."""

    name: str
    x: float
    y: float
    x_error: float = 0.0
    y_error: float = 0.0


@dataclass(frozen=True, slots=True)
class Panel:
    """One setting."""

    title: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Parts of a cost, one after the other; the last one is not paid.

    Attributes:
        name: name of the row.
        parts: name and size of each part; negative ones lower the cost.
    """

    name: str
    parts: tuple[tuple[str, float], ...]

    @property
    def paid(self) -> float:
        """Sum of all parts but the last."""
        return sum(size for _, size in self.parts[:-1])
