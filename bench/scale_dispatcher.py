"""One namespace of 2,000 GPUs: the gateway's dispatcher in virtual time, by groups of workflows.

A group is the four sample workflows with functions of their own, so that two groups share no
function. A decision is one report to the dispatcher, as in ``bench.dispatch``; the scaler's look at
all pods, once a second in the gateway, is timed apart. All by CPU time of the thread, without the
garbage collector, as in ``esg gateway``.
"""

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bench.dispatch import Owner, gpus_of
from bench.simulator import peak_mib
from scheduler.dispatch.pods import PodStart
from scheduler.model.documents import FunctionProfile, Workflow
from workbench.profiles.generated import (
    FUNCTIONS,
    WORKFLOWS,
    FunctionModel,
    generated_profile,
    generated_workflow,
)
from workbench.series.process_pool import process_pool

GPUS = 2_000
GROUPS = (1, 2)
LOAD_RATIO = 0.95  # of the rate that the pods are for: a scaler would add some when rows are late
WARM_UP, REQUESTS = 20_000, 100_000
LOOKS = 5  # of the scaler


@dataclass(frozen=True, slots=True)
class NamespaceTimes:
    """Figures of one dispatcher.

    Attributes:
        groups, gpus, pods: size of what it dispatches to.
        rate_rps: rate of the requests.
        p50_us, p99_us: CPU time of a decision.
        request_us: CPU time of all decisions of a request.
        scaler_ms: CPU time of the scaler's look at all pods.
        in_time_percent: requests in time.
        peak_mib: largest resident set of the process.
    """

    groups: int
    gpus: float
    pods: int
    rate_rps: float
    p50_us: float
    p99_us: float
    request_us: float
    scaler_ms: float
    in_time_percent: float
    peak_mib: float

    @property
    def core_rps(self) -> float:
        """Largest rate that one core holds, the scaler included."""
        return (1.0 - self.scaler_ms / 1000) * 1e6 / self.request_us

    @property
    def load_ratio(self) -> float:
        """Part of one core that the decisions take at that rate."""
        return self.rate_rps * self.request_us / 1e6 + self.scaler_ms / 1000


def documents(groups: Sequence[int]) -> tuple[list[FunctionProfile], list[Workflow]]:
    """Return the profiles and workflows of groups, by their numbers."""
    profiles = [_profile(model, group) for group in groups for model in FUNCTIONS]
    return profiles, [_workflow(name, group) for group in groups for name in WORKFLOWS]


def _profile(model: FunctionModel, group: int) -> FunctionProfile:
    return generated_profile(replace(model, name=f"{model.name}-{group}"))


def _workflow(name: str, group: int) -> Workflow:
    workflow = generated_workflow(name)
    stages = tuple(
        stage.model_copy(update={"function": f"{stage.function}-{group}"})
        for stage in workflow.spec.stages
    )
    metadata = workflow.metadata.model_copy(update={"name": f"{name}-{group}"})
    spec = workflow.spec.model_copy(update={"stages": stages})
    return workflow.model_copy(update={"metadata": metadata, "spec": spec})


def measured(groups: Sequence[int], gpus: float) -> NamespaceTimes:
    """Dispatch to so many GPUs for these groups, in this process."""
    owner = Owner(*documents(groups), seed=0)
    rate_rps = LOAD_RATIO * owner.start_gpus(gpus)
    owner.serve(rate_rps, WARM_UP)  # plans are made, kernels are loaded
    owner.times_ns.clear()
    gc.disable()
    in_time = owner.in_time
    owner.serve(rate_rps, REQUESTS)
    times_us = np.array(owner.times_ns) / 1000
    p50_us, p99_us = np.percentile(times_us, (50, 99), method="inverted_cdf")
    pods = list(owner.dispatcher.pods)
    return NamespaceTimes(
        groups=len(groups),
        gpus=gpus_of([PodStart(pod.function, pod.share) for pod in pods]),
        pods=len(pods),
        rate_rps=rate_rps,
        p50_us=float(p50_us),
        p99_us=float(p99_us),
        request_us=float(times_us.sum()) / REQUESTS,
        scaler_ms=owner.scaler_ms(rate_rps, LOOKS),
        in_time_percent=100 * (owner.in_time - in_time) / REQUESTS,
        peak_mib=peak_mib(),
    )


def main() -> dict[str, float]:
    """Measure and print a namespace with one owner, and the same with two."""
    print(
        "\nowners  workflows    GPUs    pods  requests/s   p50 us   p99 us  us/request  "
        "scaler ms  one core holds  of a core  in time   MiB"
    )
    figures: dict[str, float] = {}
    for groups in GROUPS:
        (times,) = _in_processes([range(groups)], GPUS)
        _print(1, times)
        figures |= {f"dispatcher_{groups}_p99_us": times.p99_us}
        figures |= {f"dispatcher_{groups}_core_rps": times.core_rps}
    groups = max(GROUPS)
    halves = [range(groups // 2), range(groups // 2, groups)]
    owners = _in_processes(halves, GPUS / 2)
    for owner in owners:
        _print(2, owner)
    held_rps = sum(owner.core_rps for owner in owners)
    ratio = held_rps / figures[f"dispatcher_{groups}_core_rps"]
    print(f"two owners hold {held_rps:,.0f} requests/s, {ratio:.2f} times as many as one")
    return figures | {"two_owners_ratio": ratio}


def _in_processes(owners: Sequence[Sequence[int]], gpus: float) -> list[NamespaceTimes]:
    """Measure owners at the same time, each in a process of its own."""
    with process_pool(len(owners), start_method="spawn") as processes:
        return list(processes.map(partial(measured, gpus=gpus), owners))


def _print(owners: int, times: NamespaceTimes) -> None:
    print(
        f"{owners:6}  {len(WORKFLOWS) * times.groups:9}  {times.gpus:6,.0f}  {times.pods:6,}  "
        f"{times.rate_rps:10,.0f}  {times.p50_us:7.0f}  {times.p99_us:7.0f}  "
        f"{times.request_us:10.0f}  {times.scaler_ms:9.0f}  {times.core_rps:14,.0f}  "
        f"{times.load_ratio:9.2f}  {times.in_time_percent:5.1f} %  {times.peak_mib:4.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
    sys.exit(0)
