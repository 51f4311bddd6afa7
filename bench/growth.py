"""Growth of a plan's time with the stages, their configurations, and K; and its plot."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.search_cases import SearchCase
from bench.timing import Timing
from workbench.profiles.builders import chain

STAGES = (1, 2, 4, 8, 16, 32)
CONFIGURATIONS = (16, 32, 64, 128, 256, 512, 1_024)
KS = (1, 2, 4, 8, 16, 32, 64)
ROUNDS = 31
LINES = (
    ("kernel_us", "one plan: the kernel alone", "#3366cc"),
    ("front_us", "one plan: through the Python front", "#dc7633"),
    ("prepare_us", "once: from documents to frontiers", "#7f8c8d"),
)


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """One workflow; medians over the remaining times, in microseconds."""

    x: int
    kernel_us: float
    front_us: float
    prepare_us: float

    @classmethod
    def of(cls, x: int, case: SearchCase) -> "GrowthPoint":
        """Measure a case."""
        kernel, front = (
            statistics.median(
                Timing.of(prepare_call(limit_ms), ROUNDS).median_us for limit_ms in case.limits_ms
            )
            for prepare_call in (case.by_kernel, case.through_the_front)
        )
        return cls(x, kernel, front, 1e3 * case.prepared_ms)


@dataclass(frozen=True, slots=True)
class GrowthSweep:
    """Measurements over one growing parameter."""

    title: str
    unit: str
    points: tuple[GrowthPoint, ...]

    def exponent(self) -> float:
        """Fit a power law to the kernel's times; return its exponent."""
        logs = [(math.log(point.x), math.log(point.kernel_us)) for point in self.points]
        exponent: float = statistics.linear_regression(*zip(*logs, strict=True)).slope
        return exponent

    def print(self) -> None:
        """Print a table."""
        print(f"\n{self.title}")
        print(f"{self.unit:>16}   kernel us   front us   prepare ms")
        for p in self.points:
            print(
                f"{p.x:16,}   {p.kernel_us:9.2f}   {p.front_us:8.1f}   {p.prepare_us / 1e3:10.1f}"
            )
        print(f"the kernel grows as {self.unit} ^ {self.exponent():.2f}", flush=True)


def sweeps() -> tuple[GrowthSweep, GrowthSweep, GrowthSweep]:
    """Measure chains over all three parameters."""
    return (
        GrowthSweep(
            "chain of 256 configurations, K 5",
            "stages",
            tuple(GrowthPoint.of(n, SearchCase(chain(n), 256)) for n in STAGES),
        ),
        GrowthSweep(
            "chain of 3 stages, K 5",
            "configurations",
            tuple(GrowthPoint.of(n, SearchCase(chain(3), n)) for n in CONFIGURATIONS),
        ),
        GrowthSweep(
            "chain of 3 x 256",
            "K",
            tuple(GrowthPoint.of(n, SearchCase(chain(3), 256, k=n)) for n in KS),
        ),
    )


def plot(measured: Sequence[GrowthSweep], path: Path) -> None:
    """Draw the sweeps in one PNG."""
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        panels = figure.subplots(1, len(measured), sharey=True)
        for panel, sweep in zip(panels, measured, strict=True):
            x = [point.x for point in sweep.points]
            for field, label, colour in LINES:
                y = [getattr(point, field) for point in sweep.points]
                panel.loglog(x, y, marker="o", markersize=3, color=colour, label=label)
            panel.set(title=sweep.title, xlabel=sweep.unit)
            panel.set_xticks(x, [f"{value:,}" for value in x])
            panel.minorticks_off()
            panel.grid(visible=True, linewidth=0.3)
        panels[0].set_ylabel("microseconds")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        figure.savefig(path, format="png", dpi=110)
