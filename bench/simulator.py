"""Speed and memory of the simulator: 100,000 and a million requests.

    python -m bench.simulator

The cluster and the load are those of the ESG paper's evaluation, as recalled. Policy ``warm`` has
pods with fixed shares; the containers of ``exact`` and ``minimum`` are ``resizable``, for with
fixed shares both are overloaded, and the length of their queues would be measured. An event is what
is popped from the queue of events: an arrival, the end of a run, a container that is ready, a time
for pre-warming, rescaling or a keep-alive. Each run has a process of its own, whose peak of
resident memory is printed. Events a second are by CPU time, because other programs may run on this
machine; the wall time is printed too. The results are compared with
``bench/ranges/simulator.json``.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

from bench.thresholds import check_ranges
from scheduler.model.catalogue import Catalogue
from workbench.profiles.generated import (
    FUNCTIONS,
    WORKFLOWS,
    generated_profile,
    generated_workflow,
)
from workbench.series.process_pool import process_pool
from workbench.simulation.engine import simulate
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import PAPER_SETTINGS, SETTINGS, Paper

HEADLINE = "moderate-normal"
SHIPPED = "warm"
FEW, MANY = 100_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    events: int
    cpu_s: float
    wall_s: float
    peak_mib: float
    planning_s: float
    hit_ratio: float

    @property
    def events_per_s(self) -> float:
        """By CPU time."""
        return self.events / self.cpu_s


def run(policy: str, name: str, requests: int) -> Measured:
    """Simulate in this process."""
    setting = SETTINGS[name]
    catalogue = Catalogue.of(
        [*map(generated_workflow, WORKFLOWS), *map(generated_profile, FUNCTIONS)]
    )
    arrivals = Paper(load=setting.load).arrivals(tuple(catalogue.workflows), seed=0)
    scenario = Scenario(slo_factor=setting.slo_factor, resizable=policy != SHIPPED)
    began, cpu = perf_counter(), process_time()
    result = simulate(scenario, catalogue, arrivals, policy, requests=requests)
    cpu_s, wall_s = process_time() - cpu, perf_counter() - began
    return Measured(result.events, cpu_s, wall_s, peak_mib(), result.planning_s, result.hit_ratio)


def peak_mib() -> float:
    """Return the peak of resident memory; that of `getrusage` would include the parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM:"))
    return int(peak) / 1024


def measured(policy: str, setting: str, requests: int) -> Measured:
    """Simulate in a process of its own, and print a line."""
    with process_pool(1, start_method="spawn") as processes:
        result = processes.submit(run, policy, setting, requests).result()
    print(
        f"{policy:8} {setting:16} {requests:9,} requests  {result.events:9,} events  "
        f"{result.events_per_s:8,.0f} events/s  CPU {result.cpu_s:6.1f} s, of it the policy "
        f"{result.planning_s:5.1f} s  wall {result.wall_s:.1f} s  peak {result.peak_mib:4.0f} MiB  "
        f"hits {result.hit_ratio:.4f}",
        flush=True,
    )
    return result


def main() -> int:
    """Measure, print and compare with the ranges."""
    warm = {setting: measured(SHIPPED, setting, FEW) for setting in PAPER_SETTINGS}[HEADLINE]
    few = {setting: measured("exact", setting, FEW) for setting in PAPER_SETTINGS}[HEADLINE]
    minimum, exact = measured("minimum", HEADLINE, MANY), measured("exact", HEADLINE, MANY)
    figures = {
        "events_per_s": exact.events_per_s,
        "minimum_events_per_s": minimum.events_per_s,
        "warm_events_per_s": warm.events_per_s,
        "memory_growth_mib": exact.peak_mib - few.peak_mib,
    }
    print(f"a million requests take {figures['memory_growth_mib']:.1f} MiB more than {FEW:,}")
    status = check_ranges("simulator", figures)
    print(f"events_per_s: {exact.events_per_s:.0f}")
    return status


if __name__ == "__main__":
    sys.exit(main())
