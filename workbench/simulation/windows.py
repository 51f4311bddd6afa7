"""Outcomes and costs of a whole run by window of arrival: any warm-up can be left out of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isfinite
from typing import Any

import numpy as np

from workbench.simulation.counts import Counts, Tally, counts
from workbench.simulation.steady_state import OverTime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult(Counts):
    """Result of one workflow."""

    namespace: str
    name: str
    slo_ms: float


@dataclass(frozen=True, slots=True)
class RunWorkflow:
    """A workflow of a run.

    Attributes:
        bound_dollars: least cost of one request in time; infinite if there is none.
    """

    namespace: str
    name: str
    slo_ms: float
    bound_dollars: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWindows:
    """Windows of a run; what was held is paid until its last answer or arrival.

    Attributes:
        width_ms: width of a window.
        workflows: workflows in the order of the arrivals.
        tallies: outcomes of each window by workflow.
        until_dollars: cost of what was held until the begin of each window, and until the end of
            the last.
        end_ms, end_dollars: end of the payment, and cost of what was held until then.
        idle_watts: power of all idle GPUs.
    """

    width_ms: float
    workflows: tuple[RunWorkflow, ...]
    tallies: tuple[tuple[Tally, ...], ...]
    until_dollars: tuple[float, ...]
    end_ms: float
    end_dollars: float
    idle_watts: float

    def over_time(self) -> OverTime:
        """Return the outcomes of all workflows in each window."""
        totals = [_total(tallies) for tallies in self.tallies]
        return OverTime(
            self.width_ms,
            tuple(tally.requests for tally in totals),
            tuple(tally.hits for tally in totals),
            tuple(tally.ratio_sum for tally in totals),
            tuple(end - begin for begin, end in pairwise(self.until_dollars)),
        )

    def since(self, warmup_ms: float) -> dict[str, Any]:
        """Return the fields of `Result` that depend on the length of the warm-up."""
        windows = self.tallies[ceil(warmup_ms / self.width_ms) :]
        tallies = [_total(window[i] for window in windows) for i in range(len(self.workflows))]
        totals = counts(tallies)
        edges_ms = self.width_ms * np.arange(len(self.until_dollars))
        held_dollars = self.end_dollars - float(np.interp(warmup_ms, edges_ms, self.until_dollars))
        return {
            **totals,
            "workflows": tuple(
                WorkflowResult(
                    namespace=workflow.namespace,
                    name=workflow.name,
                    slo_ms=workflow.slo_ms,
                    **counts([tally]),
                )
                for workflow, tally in zip(self.workflows, tallies, strict=True)
            ),
            "idle_dollars": max(held_dollars - totals["ran_dollars"], 0.0),
            "bound_dollars": self._bound_dollars(tallies),
            "idle_joules": self.idle_watts * max(self.end_ms - warmup_ms, 0.0) / 1000,
        }

    def _bound_dollars(self, tallies: list[Tally]) -> float | None:
        """Return the least cost of the requests; None without any, or where it is infinite."""
        dollars = sum(
            workflow.bound_dollars * tally.requests
            for workflow, tally in zip(self.workflows, tallies, strict=True)
            if tally.requests
        )
        has_requests = any(tally.requests for tally in tallies)
        return dollars if has_requests and isfinite(dollars) else None


def _total(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total
