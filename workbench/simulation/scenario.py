"""Scenario of a simulation: the cluster and the mechanisms that are switched on in it."""

from math import inf
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from scheduler.model.document_fields import Ratio
from scheduler.model.fleet_capacity import FleetCapacity, NodeSize
from scheduler.placement.options import Limits, PlacementPolicy
from scheduler.search.rules import Rules
from workbench.profiles.generated import GPU_MODEL

PAPER_KEEP_ALIVE_MS = 600_000.0
GROUP_SIZE_MAX = 32  # stages; the live setting's limit
Sharing = Literal["percent", "sevenths", "whole"]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
Finite = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class UnlikeNodes(BaseModel):
    """Further nodes that differ from the others; what is absent is as there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Count = 1
    gpus: Count | None = None
    gpu_model: str | None = None
    cpus: Count | None = None
    memory_mib: Count | None = None
    bandwidth_mib_s: Annotated[float, Field(gt=0.0)] | None = None


class NodeShape(NamedTuple):
    """Shape of one node."""

    gpus: int
    gpu_model: str
    cpus: int
    memory_mib: int
    bandwidth_mib_s: float


class Power(BaseModel):
    """Power of one GPU and of one vCPU, W."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu_idle_watts: Finite = 55.0
    gpu_max_watts: Finite = 400.0
    vcpu_watts: Finite = 2.0


class Failure(BaseModel):
    """Failure of a node, or of one of its GPUs; both are numbered from 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_ms: Finite
    node: CountOrNone
    gpu: CountOrNone | None = None
    for_ms: Annotated[float, Field(gt=0.0)] = inf


class ScenarioError(ValueError):
    """Cluster and profiles do not fit together; the message names the function or the node."""


def _with_group(rules: Rules) -> Rules:
    if not 1 <= rules.group_size <= GROUP_SIZE_MAX:
        raise ValueError(f"group_size must be from 1 to {GROUP_SIZE_MAX}")
    return rules


class Scenario(BaseModel):
    """Cluster, mechanisms and planning of one run.

    Defaults are those of the ESG paper's evaluation (arXiv 2404.16812), as recalled, where the
    paper gives a value; the descriptions name it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: Count = Field(default=16, description="number of nodes; the paper's 16")
    gpus_per_node: Count = Field(default=1, description="GPUs of a node; the paper's 1")
    gpu_models: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        default=(GPU_MODEL,),
        description="NVML names, assigned to the nodes in turn; the paper's A100. Where the key is "
        "absent: all models on which every function is profiled",
    )
    cpus: Count = Field(default=16, description="vCPUs of a node; the paper's 16")
    memory_mib: Count = Field(default=81_920, description="of one GPU, MiB; an A100's 80 GB")
    unlike_nodes: tuple[UnlikeNodes, ...] = Field(
        default=(),
        description="further nodes: `[{count: 4, gpus: 2, cpus: 64, bandwidth_mib_s: 300}]`; also "
        "`gpu_model` and `memory_mib`; a key that is absent is that of the other nodes. Data moves "
        "at the speed of the slower node",
    )
    limits: Limits = Field(
        default=Limits(), description="limits of one GPU; default: those of the live service"
    )
    slo_factor: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = Field(
        default=1.0,
        description="factor on every SLO, with `workload` or `--trace`. The samples' SLO is L, the "
        "sum of the times at the minimum configuration; the paper has strict 0.8, moderate 1.0 and "
        "relaxed 1.2 times L",
    )
    objective: Ratio | None = Field(
        default=None,
        description="ratio of the requests that every workflow wants in time; null: that of its "
        "document",
    )
    noise_ratio: Finite = Field(
        default=0.05,
        description="standard deviation of log(run time / profile); 0: none. The simulated "
        "profiles have the p95Ms of this noise. Ours: the paper gives no value",
    )
    profiled_noise: bool = Field(
        default=False,
        description="the noise of a configuration follows from its `p95Ms`, where the profile has "
        "one, in place of `noise_ratio`; with `noise_ratio: 0` there is none at all",
    )
    request_noise_ratio: Finite = Field(
        default=0.0,
        description="policies of stations: standard deviation of the logarithm of a factor that "
        "all runs of one request have in common, as of its sparsity; 0: none. Ours",
    )
    skip_overruns: bool = Field(
        default=False,
        description="policies of stations: a request is dropped when it arrives if the one before "
        "of its workflow has not ended, as a periodic task skips a release. Ours",
    )
    contexts: Annotated[int, Field(ge=1, le=16)] = Field(
        default=2,
        description="`sgprs`: contexts of a GPU, of equal size; their evaluation's 2 or 3",
    )
    contexts_percent: Annotated[float, Field(gt=0.0, le=800.0)] = Field(
        default=100.0,
        description="`sgprs`: shares of a GPU's contexts together, percent of the GPU; above 100 "
        "they overlap; their evaluation's 100, 150 and 200",
    )
    interference_ratio: Finite = Field(
        default=0.0,
        description="slowdown of a run by others that run on the whole GPU, as a ratio of its "
        "time; less in proportion to the share of those that run when it starts; 0: none. "
        "Measured elsewhere: 0.09 in the median over pairs on a V100",
    )
    interference: dict[str, Finite | dict[str, Finite]] = Field(
        default={},
        description="the same by function, in place of `interference_ratio`: a number for any "
        "neighbour, or one for each function beside it: `{segmentation: {deblur: 0.2}}`",
    )
    failures: tuple[Failure, ...] = Field(
        default=(),
        description="nodes and GPUs that fail: `[{at_ms: 60000, node: 3, for_ms: 30000}]`, with "
        "`gpu` one GPU of the node alone, without `for_ms` for ever. Containers there end; their "
        "jobs wait again. Outputs of earlier stages on a failed node are still read",
    )
    power: Power = Field(
        default=Power(),
        description="power of GPUs and vCPUs, for `joules_per_request`: a GPU takes "
        "`gpu_idle_watts` at any time, and a run the part of the rest up to `gpu_max_watts` that "
        "its share is, and `vcpu_watts` for each of its vCPUs. A model, not a measurement: 400 W "
        "is the limit of an A100 SXM by its data sheet; the others are ours",
    )
    bandwidth_mib_s: Annotated[float, Field(gt=0.0)] = Field(
        default=1_192.0,
        description="network of a node, MiB/s, for input that is on another node; .inf: data moves "
        "at once. Ours: 10 Gbit/s",
    )
    keep_alive_ms: Finite | None = Field(
        default=None,
        description="time that an idle container stays warm after its last run, ms; null: the "
        "paper's 10 min, and with `warm` as live, learned from the times between requests",
    )
    warm_containers: CountOrNone = Field(
        default=1,
        description="0: an empty cluster at the start. Above 0, each policy begins with warm "
        "containers of its own choice for the expected rate, as far as there is room; with "
        "`resizable`, with so many idle ones of each function on each GPU; without `idle_share`, "
        "of each share of each function. Ours",
    )
    warmup_ms: Finite | None = Field(
        default=None,
        description="requests that arrive before are left out of the counts, and what is held "
        "before of the cost, ms, rounded up to a window: 1 s, and more in runs above 512 s; null: "
        "by MSER-5, none in a run of less than 100 s. Ours",
    )
    prewarm: bool = Field(
        default=True, description="start containers before the predicted next arrival"
    )
    replan: bool = Field(
        default=True,
        description="plan a stage with the remaining slack; false: with the part of the SLO that "
        "the split assigns to it",
    )
    batching: bool = Field(
        default=True, description="run requests together; false: one request per run"
    )
    sharing: Sharing = Field(
        default="percent",
        description="percent: GPU shares as MPS assigns them. sevenths: rounded up to sevenths, as "
        "MIG assigns them. whole: one GPU per run",
    )
    resizable: bool = Field(
        default=False,
        description="a warm container can run under any configuration, and holds its memory alone "
        "while it is idle; false: it runs with the vCPUs and the share that it started with, and "
        "holds them, as MPS fixes the share of a process. The paper seems to assume true",
    )
    idle_share: bool = Field(
        default=True,
        description="with fixed shares, an idle container holds its vCPUs and its share. false: it "
        "holds its memory alone, so that containers of several shares are warm on one GPU, and "
        "each run takes its share as a token from an arbiter of the GPU; not for policies that "
        "autoscale containers, which hold theirs",
    )
    pool: bool = Field(
        default=False,
        description="`warm`: pods run in slices of GPUs, which the pool sets aside and pays. A pod "
        "holds its memory alone, and takes its vCPUs and its share from the slice for each run",
    )
    pool_gpus: CountOrNone = Field(
        default=0,
        description="`pool`: GPUs that the pool sets aside at any load; above 0, pods are pooled "
        "also where memory holds hardly more of them than percent and vCPUs do",
    )
    arbiter: bool = Field(
        default=True,
        description="`pool`: a run begins when the slice has its share free. false: at once, and "
        "all runs of a GPU take as much longer as their shares exceed it together",
    )
    misses_max: CountOrNone = Field(
        default=3,
        description="placement failures in a row after which the minimum configuration is forced; "
        "0: never; the paper's 3, by a summary",
    )
    retry_ms: Finite = Field(
        default=100.0,
        description="a placement failure counts when the last counted one is at least this long "
        "ago, ms. Ours: the paper's scheduler polls, the simulator retries when capacity is freed",
    )
    give_up_factor: Annotated[float, Field(gt=0.0)] = Field(
        default=inf,
        description="a waiting request is dropped so many SLOs after its arrival; .inf: never. "
        "Not for `warm`, which drops none. Ours",
    )
    placement: PlacementPolicy = Field(
        default="defrag",
        description="pack: the tightest fit first. spread: the emptiest first. defrag: where the "
        "run adds least to fragmentation. Default: that of the live service",
    )
    rules: Annotated[Rules, AfterValidator(_with_group)] = Field(
        default=Rules(),
        description="planning rules: prices, group size and the rest; default: those of the live "
        "service. `policies` replaces `rules.policy`",
    )
    candidates: Annotated[int, Field(ge=1, le=64)] = Field(
        default=5,
        description="K, number of configurations that are tried in order; the paper's 5, of low "
        "certainty; default: that of the live service",
    )
    headroom_ratio: Annotated[float, Field(gt=-1.0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="additional capacity of policies that hold containers, as a ratio of the rate "
        "(`warm`: of its reserve); Orion and Aquatope: time below the SLO. `esg paper` searches "
        "it. Ours",
    )
    margin_ratio: Finite | None = Field(
        default=None,
        description="ratio by which stages may exceed their profile and still meet the SLO; null: "
        "the margin that the workflow's objective needs, by the noise. Ours; default: that of the "
        "live service",
    )

    @property
    def fleet(self) -> FleetCapacity:
        """Size of the nodes with each GPU model."""
        context_mib = self.limits.server_context_mib
        return FleetCapacity.of(
            (
                (shape.gpu_model, NodeSize(shape.cpus * 1000, shape.memory_mib - context_mib))
                for shape in self.node_shapes
            ),
            self.limits.percent_max,
        )

    @property
    def node_shapes(self) -> tuple[NodeShape, ...]:
        """Shape of each node, the unlike ones last."""
        models = self.gpu_models
        alike = NodeShape(
            self.gpus_per_node, models[0], self.cpus, self.memory_mib, self.bandwidth_mib_s
        )
        unlike = (
            alike._replace(
                **group.model_dump(exclude={"count", "gpus"}, exclude_none=True),
                gpus=group.gpus or alike.gpus,
            )
            for group in self.unlike_nodes
            for _ in range(group.count)
        )
        return (
            *(alike._replace(gpu_model=models[n % len(models)]) for n in range(self.nodes)),
            *unlike,
        )

    @property
    def container_keep_alive_ms(self) -> float:
        """Keep-alive of containers, where the policy does not learn it."""
        return PAPER_KEEP_ALIVE_MS if self.keep_alive_ms is None else self.keep_alive_ms

    @property
    def margin_text(self) -> str:
        """Name the margin in a sentence."""
        if self.margin_ratio is None:
            return "the margin that the objective needs"
        return f"a margin of {100 * self.margin_ratio:g} %"
