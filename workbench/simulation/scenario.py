"""The simulated cluster and what is switched on in it: every setting with its unit and source."""

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal

from scheduler.placement.options import FitPolicy, Limits
from scheduler.search.rules import Rules
from workbench.profiles.generated import GPU_MODEL

Sharing = Literal["percent", "sevenths", "whole"]


class ScenarioError(ValueError):
    """A setting that makes no sense; the message says which, and what it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Defaults are the ESG paper's evaluation (arXiv 2404.16812), as recalled, where it says it.

    Attributes:
        nodes: how many; the paper's 16.
        gpus_per_node: the paper's 1.
        gpu_models: NVML's names, given to the nodes in turn; the paper's A100.
        cpus: vCPUs of a node; the paper's 16.
        memory_mib: of one GPU, MiB; 80 GB of an A100.
        limits: of one GPU, as live.
        slo_factor: on every workflow's SLO. The samples' SLO is L, the sum of the times at the
            minimum configuration; the paper has strict 0.8, moderate 1.0 and relaxed 1.2 times L.
        noise_ratio: standard deviation of the logarithm of run time over profile; 0: none. Ours:
            the paper tells none.
        interference_ratio: mean slowdown of a run by neighbours that hold the whole GPU, as a
            ratio of its time; less in proportion to the share they hold when it starts. 0: none.
            Measured elsewhere: 0.09 in the median over pairs on a V100.
        bandwidth_mib_s: of a node's network, MiB/s, for the input that is on another node; inf:
            data moves at once. Ours: 10 Gbit/s.
        keep_alive_ms: how long a container stays warm after its last run, ms; the paper's 10 min.
        warm_containers: of each function on each GPU at the start, so that a run does not measure
            its own beginning; 0: an empty cluster. Where it is above 0, what a policy keeps from
            the start is warm then as well. Ours.
        prewarm: whether containers are started for predicted arrivals.
        replan: whether a stage is planned with the slack that is left; otherwise with the part of
            the SLO that the split leaves for it, whatever has happened before it.
        batching: whether requests may run together; otherwise each runs by itself.
        sharing: ``percent``: shares as MPS gives them. ``sevenths``: rounded up to multiples of a
            seventh, as MIG gives them. ``whole``: a GPU for each run.
        resizable: whether a warm container may be given another configuration. MPS fixes the share
            when a process starts, so otherwise a container is warm for its own alone; the paper
            seems to assume that it may.
        misses_max: after so many looks in a row without room, the minimum configuration is forced;
            the paper's 3, by a summary; 0: never.
        retry_ms: a look without room counts as a miss when the last one that counted is so long
            ago, ms. Ours: the paper's scheduler comes round by itself, we look when room comes.
        give_up_factor: a request that still waits so many SLOs after its arrival is dropped; inf:
            never. Ours.
        placement: ``pack``, the tightest fit first, or ``spread``.
        rules: of planning: prices, group size and the rest; their ``policy`` is the simulated one.
        candidates: K, how many configurations are tried in order; the paper's 5, of low certainty.
        margin_ratio: by how much stages may run over their profile and still be in time. Ours: two
            standard deviations of the noise; the live default is the same.
        seed: of everything that is left to chance.
    """

    nodes: int = 16
    gpus_per_node: int = 1
    gpu_models: tuple[str, ...] = (GPU_MODEL,)
    cpus: int = 16
    memory_mib: int = 81_920
    limits: Limits = field(default_factory=Limits)
    slo_factor: float = 1.0
    noise_ratio: float = 0.05
    interference_ratio: float = 0.0
    bandwidth_mib_s: float = 1_192.0
    keep_alive_ms: float = 600_000.0
    warm_containers: int = 1
    prewarm: bool = True
    replan: bool = True
    batching: bool = True
    sharing: Sharing = "percent"
    resizable: bool = True
    misses_max: int = 3
    retry_ms: float = 100.0
    give_up_factor: float = inf
    placement: FitPolicy = "pack"
    rules: Rules = field(default_factory=Rules)
    candidates: int = 5
    margin_ratio: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus_per_node", "cpus", "memory_mib", "candidates"):
            self._least(name, 1)
        for name in ("warm_containers", "misses_max", "seed"):
            self._least(name, 0)
        for name in (
            "noise_ratio",
            "interference_ratio",
            "margin_ratio",
            "keep_alive_ms",
            "retry_ms",
        ):
            self._least(name, 0.0)
        for name in ("slo_factor", "bandwidth_mib_s", "give_up_factor"):
            if not getattr(self, name) > 0:
                raise ScenarioError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not isfinite(self.slo_factor):
            raise ScenarioError(f"slo_factor is {self.slo_factor}; it must be a number")
        if not self.gpu_models:
            raise ScenarioError("gpu_models is empty; name at least one model of GPU")

    def _least(self, name: str, least: float) -> None:
        value = getattr(self, name)
        if not (value >= least and isfinite(value)):
            raise ScenarioError(f"{name} is {value}; it must be at least {least:g}")
