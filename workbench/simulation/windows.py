"""Outcomes and costs of a whole run by window of arrival: any warm-up can be left out of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isfinite
from typing import Any, NamedTuple

import numpy as np

from workbench.simulation.cost_split import CostSplit
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


class DollarsOverTime(NamedTuple):
    """Cost of something over the windows of a run.

    Attributes:
        until: dollars until the begin of each window, and until the end of the last.
        end: dollars until the end of the payment.
    """

    until: tuple[float, ...]
    end: float

    def since(self, warmup_ms: float, width_ms: float) -> float:
        """Return the dollars from the end of a warm-up to the end of the payment."""
        edges_ms = width_ms * np.arange(len(self.until))
        return self.end - float(np.interp(warmup_ms, edges_ms, self.until))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWindows:
    """Windows of a run; what was held is paid until its last answer or arrival.

    Attributes:
        width_ms: width of a window.
        workflows: workflows in the order of the arrivals.
        tallies: outcomes of each window by workflow.
        held: cost of what was held.
        starting: the part of it that containers held while they started.
        rented: cost of the whole nodes on which anything was held; None: nodes are held.
        end_ms: end of the payment.
        idle_watts: power of all idle GPUs.
    """

    width_ms: float
    workflows: tuple[RunWorkflow, ...]
    tallies: tuple[tuple[Tally, ...], ...]
    held: DollarsOverTime
    starting: DollarsOverTime
    rented: DollarsOverTime | None
    end_ms: float
    idle_watts: float

    def over_time(self) -> OverTime:
        """Return the outcomes of all workflows in each window."""
        totals = [_total(tallies) for tallies in self.tallies]
        return OverTime(
            self.width_ms,
            tuple(tally.requests for tally in totals),
            tuple(tally.hits for tally in totals),
            tuple(tally.ratio_sum for tally in totals),
            tuple(end - begin for begin, end in pairwise(self.held.until)),
        )

    def since(self, warmup_ms: float) -> dict[str, Any]:
        """Return the fields of `Result` that depend on the warm-up, rounded up to a window."""
        first = ceil(warmup_ms / self.width_ms)
        warmup_ms = first * self.width_ms
        windows = self.tallies[first:]
        tallies = [_total(window[i] for window in windows) for i in range(len(self.workflows))]
        total, totals = _total(tallies), counts(tallies)
        held_dollars = self.held.since(warmup_ms, self.width_ms)
        idle_dollars = max(held_dollars - total.ran_dollars, 0.0)
        bound_dollars = self._bound_dollars(tallies)
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
            "idle_dollars": idle_dollars,
            "bound_dollars": bound_dollars,
            "split": self._split(total, bound_dollars, idle_dollars, warmup_ms),
            "idle_joules": self.idle_watts * max(self.end_ms - warmup_ms, 0.0) / 1000,
        }

    def _split(
        self, total: Tally, bound_dollars: float | None, idle_dollars: float, warmup_ms: float
    ) -> CostSplit | None:
        if bound_dollars is None or self.rented is None:
            return None
        starts_dollars = min(self.starting.since(warmup_ms, self.width_ms), idle_dollars)
        served = total.limit_dollars + total.planning_dollars + total.batching_dollars
        paid_dollars = total.ran_dollars + idle_dollars
        return CostSplit(
            limit=bound_dollars,
            unserved=total.limit_dollars - bound_dollars,
            batching=total.batching_dollars,
            planning=total.planning_dollars,
            noise=total.ran_dollars - served,
            starts=starts_dollars,
            idle=idle_dollars - starts_dollars,
            fragmentation=self.rented.since(warmup_ms, self.width_ms) - paid_dollars,
        )

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
