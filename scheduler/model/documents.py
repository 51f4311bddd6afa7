"""The user's documents (``esg-scheduler.io/v1alpha1``): ``Workflow`` and ``FunctionProfile``.

`scheduler.model.function_server` has the third kind, ``FunctionServer``.

The CRDs, ``esg check`` and the live service share the validation of these pydantic models.
Fields are camelCase in YAML and snake_case here. Names include units.
"""

from collections import Counter
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from itertools import product
from typing import Any, Literal, LiteralString, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from scheduler.model.document_fields import (
    LATENCY_MAX_MS,
    DocumentModel,
    Metadata,
    Milliseconds,
    Name,
    Ratio,
)
from scheduler.model.function_server import FunctionServer
from scheduler.model.message_text import listed
from scheduler.model.names import API_VERSION

STAGES_MAX = 32  # the search stores a set of stages in one machine word
INPUTS_MAX = 32
OBJECTIVE = 0.99  # of a Workflow that states none, and of a function without a workflow
OnLate = Literal["cheapest", "fastest", "drop"]


class Slo(DocumentModel):
    """Service-level objective on the end-to-end latency of a workflow."""

    latency_ms: Milliseconds = Field(
        description="end-to-end latency in ms that a request may take, from its arrival"
    )
    objective: Ratio = Field(
        default=OBJECTIVE,
        description="ratio of requests that must meet the latency; plans keep the margin that it "
        "needs",
    )


OUTPUT_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\..+$"


class StageSource(DocumentModel):
    """An input tensor of a stage, and the output of an earlier stage that it takes."""

    name: str = Field(min_length=1, max_length=256, description="name of the stage's input tensor")
    source: str = Field(
        alias="from",
        max_length=320,
        pattern=OUTPUT_PATTERN,
        description="a stage of `after`, a dot and the name of its output tensor",
    )

    @property
    def stage(self) -> str:
        """Stage whose output it takes."""
        return self.source.partition(".")[0]

    @property
    def output(self) -> str:
        """Name of that output; it may have dots, a stage's name has none."""
        return self.source.partition(".")[2]


class Stage(DocumentModel):
    """One step of a workflow: a function and the stages whose output it reads."""

    name: Name
    function: Name = Field(description="the name of its FunctionProfile")
    after: tuple[Name, ...] = Field(
        default=(), description="stages that must end before this one starts"
    )
    inputs: tuple[StageSource, ...] = Field(
        default=(),
        max_length=INPUTS_MAX,
        description="input tensors by name, for requests through the gateway; none: all outputs of "
        "`after` under their own names",
    )

    @model_validator(mode="after")
    def _inputs_come_from_earlier_stages(self) -> Self:
        for name, count in Counter(feed.name for feed in self.inputs).items():
            if count > 1:
                raise ValueError(f"inputs: the name {name!r} is used {count} times; use it once")
        for feed in self.inputs:
            if feed.stage not in self.after:
                raise ValueError(
                    f"inputs: {feed.name!r} is from {feed.source!r}, and {feed.stage!r} is not "
                    f"in 'after' (which has {listed(list(self.after))}); add it there"
                )
        return self


class WorkflowSpec(DocumentModel):
    """A DAG of stages with one latency SLO."""

    slo: Slo = Field(description="end-to-end latency, and how many requests must keep it")
    on_late: OnLate | None = Field(
        default=None,
        description="what the gateway does with a request that cannot meet the latency any more: "
        "serve it by the cheapest or the fastest configuration, or drop it; unset: "
        "ESG_ON_LOST_SLO",
    )
    stages: tuple[Stage, ...] = Field(
        min_length=1, max_length=STAGES_MAX, description="steps, whose `after` form no cycle"
    )

    @model_validator(mode="after")
    def _stages_form_a_dag(self) -> Self:
        names = [stage.name for stage in self.stages]
        for name, count in Counter(names).items():
            if count > 1:
                raise ValueError(f"stages: the name {name!r} is used {count} times; use it once")
        for stage in self.stages:
            for before in stage.after:
                if before not in names:
                    stages = ", ".join(names)
                    raise _refusal(
                        "UnknownStage",
                        f"stages: {stage.name!r} comes after {before!r}, which is not a stage of "
                        f"this workflow (stages are {stages})",
                    )
        try:
            TopologicalSorter({stage.name: stage.after for stage in self.stages}).prepare()
        except CycleError as error:
            # graphlib lists the cycle from each stage to one that it waits for.
            cycle = " after ".join(error.args[1])
            raise _refusal("Cycle", f"stages: a cycle, {cycle}; remove one 'after'") from None
        return self


def _refusal(reason: LiteralString, text: str) -> PydanticCustomError:
    """Return an error whose type is the reason of the condition Accepted."""
    return PydanticCustomError(reason, "{text}", {"text": text})


class Workflow(DocumentModel):
    """A workflow of DNN functions and its SLO (namespaced)."""

    api_version: Literal["esg-scheduler.io/v1alpha1"] = API_VERSION
    kind: Literal["Workflow"] = "Workflow"
    metadata: Metadata
    spec: WorkflowSpec

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.metadata.namespace or "default", self.metadata.name

    def stage(self, name: str) -> Stage | None:
        """Return the stage with that name, or None."""
        return next((stage for stage in self.spec.stages if stage.name == name), None)


class GridPoint(DocumentModel):
    """Batch size, vCPUs and GPU share, which identify a configuration on one GPU model."""

    batch: int = Field(strict=True, ge=1, le=4096, description="requests run together")
    cpu: int = Field(strict=True, ge=1, le=1024, description="vCPUs")
    gpu_percent: int = Field(strict=True, ge=1, le=100, description="MPS active thread percentage")

    def __str__(self) -> str:
        return f"(batch {self.batch}, {self.cpu} vCPU, {self.gpu_percent} % GPU)"


class ProfiledConfiguration(GridPoint):
    """One measured point: the latency of a whole batch under one configuration."""

    latency_ms: Milliseconds = Field(
        description="time of one whole batch, ms: mean or median of many runs"
    )
    p95_ms: Milliseconds | None = Field(
        default=None,
        description="95th percentile of that time, ms, where it was measured; at least latencyMs",
    )
    memory_mib: int = Field(
        ge=1,
        le=1_048_576,
        strict=True,
        description="memory of the process on the GPU, context included, MiB",
    )

    @field_validator("p95_ms")
    @classmethod
    def _valid_p95_ms(cls, p95_ms: float | None, info: ValidationInfo) -> float | None:
        latency_ms = info.data.get("latency_ms")
        if p95_ms is not None and latency_ms is not None and p95_ms < latency_ms:
            raise ValueError(
                f"is below latencyMs, {latency_ms:g} ms; give the mean or median as latencyMs, and "
                "the 95th percentile of the same runs as p95Ms, or leave p95Ms out"
            )
        return p95_ms


class GpuProfile(DocumentModel):
    """Configurations of a function on one GPU model."""

    model: str = Field(
        min_length=1, max_length=128, description="NVML's name, as in 'NVIDIA A100-SXM4-80GB'"
    )
    sparse: bool = Field(
        default=False,
        strict=True,
        description="the configurations are deliberately not a full batch x cpu x gpuPercent grid",
    )
    configurations: tuple[ProfiledConfiguration, ...] = Field(
        min_length=1, max_length=16384, description="measured points, each once"
    )

    @model_validator(mode="after")
    def _grid_has_no_hole(self) -> Self:
        points = Counter((c.batch, c.cpu, c.gpu_percent) for c in self.configurations)
        for (batch, cpu, percent), count in points.items():
            if count > 1:
                raise ValueError(
                    f"configurations: batch {batch}, cpu {cpu}, gpuPercent {percent} is given "
                    f"{count} times; keep one"
                )
        if self.sparse:
            return self
        axes = [sorted({point[axis] for point in points}) for axis in range(3)]
        holes = (point for point in product(*axes) if point not in points)
        if (hole := next(holes, None)) is not None:
            batch, cpu, percent = hole
            whole = len(axes[0]) * len(axes[1]) * len(axes[2])
            raise ValueError(
                f"configurations: a hole at batch {batch}, cpu {cpu}, gpuPercent {percent} "
                f"({len(points)} of the grid's {whole} points are there); "
                "add what is missing, or set sparse: true"
            )
        return self


class FunctionProfileSpec(DocumentModel):
    """Measured properties of a function: latencies, memory, cold start, output size."""

    cold_start_ms: float = Field(
        default=0,
        ge=0,
        le=LATENCY_MAX_MS,
        strict=True,
        description="from pod start to the first batch of requests, ms; the median where "
        "coldStartP95Ms is given",
    )
    cold_start_p95_ms: Milliseconds | None = Field(
        default=None,
        description="95th percentile of that time, ms, where it was measured; at least coldStartMs",
    )
    output_mib: float = Field(
        default=0,
        ge=0,
        le=1_048_576,
        strict=True,
        description="output of one request, MiB: the next stage reads it",
    )
    gpus: tuple[GpuProfile, ...] = Field(
        min_length=1, max_length=64, description="GPU models on which it was measured, each once"
    )

    @field_validator("cold_start_p95_ms")
    @classmethod
    def _valid_cold_start_p95_ms(cls, p95_ms: float | None, info: ValidationInfo) -> float | None:
        start_ms = info.data.get("cold_start_ms")
        if p95_ms is not None and start_ms is not None and not 0 < start_ms <= p95_ms:
            raise ValueError(
                f"needs a coldStartMs above 0 and no longer than {p95_ms:g} ms, not {start_ms:g}; "
                "give the median of the same starts as coldStartMs, or leave coldStartP95Ms out"
            )
        return p95_ms

    @property
    def slow_start_ms(self) -> float:
        """95th percentile of a cold start; `cold_start_ms` where it was not measured."""
        return self.cold_start_p95_ms or self.cold_start_ms

    @model_validator(mode="after")
    def _one_profile_a_model(self) -> Self:
        for model, count in Counter(gpu.model for gpu in self.gpus).items():
            if count > 1:
                raise ValueError(f"gpus: the model {model!r} is given {count} times; merge them")
        return self


class FunctionProfile(DocumentModel):
    """Profile of one function on each GPU model it was measured on (cluster-scoped)."""

    api_version: Literal["esg-scheduler.io/v1alpha1"] = API_VERSION
    kind: Literal["FunctionProfile"] = "FunctionProfile"
    metadata: Metadata
    spec: FunctionProfileSpec

    @property
    def spec_sha256(self) -> str:
        """Digest of the spec, equal for equal values whatever the form of the document."""
        return sha256(self.spec.model_dump_json().encode()).hexdigest()

    def gpu(self, model: str) -> GpuProfile | None:
        """Return the profile on a GPU model, or None if the function was not measured on it."""
        return next((gpu for gpu in self.spec.gpus if gpu.model == model), None)


Document = Workflow | FunctionProfile | FunctionServer
KINDS: dict[str, type[Workflow] | type[FunctionProfile] | type[FunctionServer]] = {
    "Workflow": Workflow,
    "FunctionProfile": FunctionProfile,
    "FunctionServer": FunctionServer,
}


def to_manifest(document: Document) -> dict[str, Any]:
    """Return the document as the JSON that Kubernetes stores: camelCase, without unset fields."""
    return document.model_dump(mode="json", by_alias=True, exclude_unset=True)
