"""A trace of requests, and what the simulator says of it on a cluster that begins without a pod.

The first requests show how the pods of a rising load come; the figures of those after them are
compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from scheduler.model.catalogue import Catalogue
from workbench.simulation.engine import simulate
from workbench.simulation.loop import Observers
from workbench.simulation.result import RequestRecord
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.arrivals import ChunkedArrivals, Extent
from workbench.simulation.workloads.paper import Load, Paper

NOISE_RATIO = 0.05  # standard deviation of log(run time / time of the profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTrace:
    """Requests of a catalogue's workflows, as in the ESG paper's evaluation.

    Attributes:
        first: requests of the beginning, while pods start.
        then: requests after them.
    """

    catalogue: Catalogue
    load: Load
    first: int
    then: int
    seed: int

    @property
    def requests(self) -> int:
        """All requests."""
        return self.first + self.then

    @property
    def arrivals(self) -> ChunkedArrivals:
        """Their times and workflows."""
        keys = tuple(self.catalogue.workflows)
        extent = Extent(requests=self.requests)
        return Paper(load=self.load).arrivals(keys, seed=self.seed, extent=extent)


class TraceFigures(NamedTuple):
    """Figures of one run of a trace.

    Attributes:
        first_percent, then_percent: requests in time, of those at the beginning and of the others.
        dollars_per_thousand: price of what all pods held, idle or not, for 1,000 requests.
        runs: batches of model servers.
        pods: those that ran a batch.
        tail_s: time of the last answer after the last arrival; pods are paid until then.
    """

    first_percent: float
    then_percent: float
    dollars_per_thousand: float
    runs: int
    pods: int
    tail_s: float


def scenario(*, nodes: int, cpus: int, pool: bool = False) -> Scenario:
    """Return the simulator's scenario of the played cluster: no pods, and small tensors.

    All requests count, also those of the warm-up.
    """
    return Scenario(
        nodes=nodes,
        cpus=cpus,
        warm_containers=0,
        warmup_ms=0.0,
        noise_ratio=NOISE_RATIO,
        bandwidth_mib_s=inf,
        pool=pool,
    )


def simulated(trace: ServedTrace, cluster: Scenario, *, noise_seed: int) -> TraceFigures:
    """Run a trace in the simulator, with one seed of the run times' noise."""
    records: list[RequestRecord] = []
    pods: set[int] = set()
    keys = tuple(trace.catalogue.workflows)
    result = simulate(
        cluster,
        trace.catalogue,
        trace.arrivals,
        "warm",
        seed=noise_seed,
        rates_rps=dict.fromkeys(keys, 0.0),
        observers=Observers(
            on_request=records.append, on_span=lambda span: pods.add(span.container)
        ),
    )
    in_time = {record.number + 1 for record in records if record.outcome == "hit"}
    dollars = result.paid_dollars
    return TraceFigures(
        *percents(trace, in_time),
        dollars_per_thousand=1000 * dollars / trace.requests,
        runs=result.runs,
        pods=len(pods),
        tail_s=tail_s(trace, {r.number + 1: r.end_ms - r.arrival_ms for r in records}),
    )


def tail_s(trace: ServedTrace, latencies_ms: Mapping[int, float]) -> float:
    """Return the time of the last answer after the last arrival, of latencies by number."""
    times_ms = np.concatenate([times_ms for times_ms, _ in trace.arrivals.chunks()])
    ends_ms = (times_ms[number - 1] + latency_ms for number, latency_ms in latencies_ms.items())
    return float(max(ends_ms) - times_ms[-1]) / 1000


def percents(trace: ServedTrace, in_time: set[int]) -> tuple[float, float]:
    """Return the percent of requests in time, of the first ones and of the others."""
    first = sum(number <= trace.first for number in in_time)
    return 100 * first / trace.first, 100 * (len(in_time) - first) / trace.then
