"""Points in panels, one a setting, and the figures of them as files."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.reports.standalone import standalone
from workbench.reports.writing import require_extra


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


def positions_svg(panels: Sequence[Panel], x_label: str, y_label: str, label: str) -> str:
    """Each point in the plane of its panel; ``y`` are parts of one.

    ``label`` says what is to be seen.

    Raises:
        MissingLibraryError: a library of the extra ``report`` is not installed.
    """
    require_extra()
    from workbench.reports import drawing, paper_figures  # noqa: PLC0415 - they import matplotlib

    with drawing.house_style():
        return standalone(paper_figures.positions_figure(panels, x_label, y_label, label))


def differences_svg(panels: Sequence[Panel], x_label: str, label: str) -> str:
    """Each point's ``x`` on a row of its own, from 0; the panels beside one another.

    Raises:
        MissingLibraryError: as above.
    """
    require_extra()
    from workbench.reports import drawing, paper_figures  # noqa: PLC0415 - they import matplotlib

    with drawing.house_style():
        return standalone(paper_figures.differences_figure(panels, x_label, label))
