"""Sample documents whose profiles are generated, not measured: four workflows, six functions.

Known of each function is one point: its time t0 at the minimum configuration (batch 1, 1 vCPU, 1/7
of an A100), read in a summary of the ESG paper (arXiv 2404.16812). Everything else follows from

    t(b, c, g) = t0 * (phi * b / c**alpha + (1 - phi) * b**beta / g**gamma),   g = gpuPercent / 14

with batch b and c vCPUs: a part phi runs on the CPU, grows with the batch and shrinks with the
vCPUs; the rest runs on the GPU, where a larger share pays the more, the heavier the model, and a
larger batch the less. At b = c = g = 1 the time is t0 exactly. Every document says that it is
generated.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

from scheduler.model.document_fields import Metadata
from scheduler.model.documents import (
    FunctionProfile,
    FunctionProfileSpec,
    GpuProfile,
    ProfiledConfiguration,
    Slo,
    Stage,
    Workflow,
    WorkflowSpec,
)
from scheduler.model.names import API_VERSION, GROUP

GPU_MODEL = "NVIDIA A100-SXM4-80GB"
ANNOTATION_GENERATED = f"{GROUP}/generated"
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16)
CPUS = (1, 2, 4, 8)
GPU_PERCENTS = (14, 21, 28, 42, 57, 71, 85, 100)  # sevenths of a GPU and their halves
GPU_PERCENT_MIN = 14
P95_RATIO = 1.05  # log-normal noise of 3 %, 1.645 standard deviations up


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """Parameters of a function's generated profile.

    Attributes:
        t0_ms: time of one request at the minimum configuration, from the summary. All other
            parameters are assumed.
        phi: part of the CPU in t0, 0.1-0.3: the lighter the model, the larger the part.
        alpha: exponent of the CPU part's speed-up by vCPUs, 0.5-0.8.
        beta: exponent of the GPU part's growth with the batch, 0.5-0.7: a heavy model fills the GPU
            sooner.
        gamma: exponent of the GPU part's speed-up by a larger share, 0.3-0.8: a heavy model can use
            it.
        memory_mib: memory of the process with its context and weights, in MiB.
        request_mib: additional memory for each request of the batch, in MiB.
        cold_start_ms: time from pod start to first batch.
        output_mib: size of what the next stage reads of one request, in MiB.
    """

    name: str
    t0_ms: float
    phi: float
    alpha: float
    beta: float
    gamma: float
    memory_mib: int
    request_mib: int
    cold_start_ms: float
    output_mib: float


# fmt: off
FUNCTIONS = (
    # name, t0, phi, alpha, beta, gamma, memory, of a request, cold start, output
    FunctionModel("super-resolution",     86, 0.30, 0.8, 0.50, 0.30, 1200,  60, 1500,  6.0),
    FunctionModel("segmentation",        293, 0.20, 0.7, 0.60, 0.50, 1700, 100, 2300,  1.5),
    FunctionModel("deblur",              319, 0.20, 0.7, 0.60, 0.55, 1500, 120, 2100,  3.0),
    FunctionModel("classification",      147, 0.25, 0.8, 0.55, 0.40, 1100,  40, 1700, 0.01),
    FunctionModel("background-removal", 1047, 0.10, 0.5, 0.70, 0.80, 2600, 200, 3600,  3.0),
    FunctionModel("depth-recognition",   828, 0.12, 0.6, 0.68, 0.75, 2200, 160, 3100,  1.0),
)
# fmt: on

# Chains recalled from the paper; the SLO is 1.0 L, L being the sum of t0: "moderate" there.
WORKFLOWS = {
    "image-classification": ("super-resolution", "segmentation", "classification"),
    "depth-recognition": ("deblur", "super-resolution", "depth-recognition"),
    "background-elimination": ("super-resolution", "deblur", "background-removal"),
    "expanded-image-classification": (
        "deblur",
        "super-resolution",
        "background-removal",
        "segmentation",
        "classification",
    ),
}


@cache  # it is frozen, and takes milliseconds
def generated_profile(function: FunctionModel) -> FunctionProfile:
    """The function's profile over the whole grid of batches, vCPUs and shares."""
    configurations = tuple(
        ProfiledConfiguration(
            batch=batch,
            cpu=cpu,
            gpu_percent=percent,
            latency_ms=latency_ms,
            p95_ms=round(latency_ms * P95_RATIO, 3),
            memory_mib=function.memory_mib + function.request_mib * batch,
        )
        for batch, cpu, percent in product(BATCHES, CPUS, GPU_PERCENTS)
        for latency_ms in [round(_latency_ms(function, batch, cpu, percent), 3)]
    )
    return FunctionProfile(
        metadata=_metadata(function.name),
        spec=FunctionProfileSpec(
            cold_start_ms=function.cold_start_ms,
            output_mib=function.output_mib,
            gpus=(GpuProfile(model=GPU_MODEL, configurations=configurations),),
        ),
    )


def generated_workflow(name: str) -> Workflow:
    """One of WORKFLOWS: a chain whose SLO is the sum of its functions' t0."""
    functions = WORKFLOWS[name]
    t0_ms = {function.name: function.t0_ms for function in FUNCTIONS}
    stages = tuple(
        Stage(name=function, function=function, after=functions[max(0, i - 1) : i])
        for i, function in enumerate(functions)
    )
    slo = Slo(latency_ms=sum(t0_ms[function] for function in functions))
    return Workflow(
        metadata=_metadata(name, namespace="default"), spec=WorkflowSpec(slo=slo, stages=stages)
    )


def samples() -> list[Workflow | FunctionProfile]:
    """The workflows of WORKFLOWS, and the profiles of their functions."""
    return [*map(generated_workflow, WORKFLOWS), *map(generated_profile, FUNCTIONS)]


def sample_documents() -> dict[str, str]:
    """The files of ``deploy/samples/``: name and YAML text."""
    return {
        "workflows.yaml": _file(
            "The four workflows of the ESG paper's evaluation, as recalled.",
            [_workflow_yaml(generated_workflow(name)) for name in WORKFLOWS],
        ),
        "profiles.yaml": _file(
            "Profiles of the functions of those workflows.",
            [_profile_yaml(generated_profile(function)) for function in FUNCTIONS],
        ),
        "servers.yaml": _SERVERS_HEAD
        + "---\n".join(_server_yaml(function.name) for function in FUNCTIONS),
    }


def _latency_ms(function: FunctionModel, batch: int, cpu: int, gpu_percent: int) -> float:
    on_cpu = function.phi * batch / cpu**function.alpha
    share = gpu_percent / GPU_PERCENT_MIN
    on_gpu = (1 - function.phi) * batch**function.beta / share**function.gamma
    return float(function.t0_ms * (on_cpu + on_gpu))


def _metadata(name: str, namespace: str | None = None) -> Metadata:
    return Metadata.model_validate(
        {
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            "annotations": {ANNOTATION_GENERATED: "true"},
        }
    )


def _file(title: str, documents: list[str]) -> str:
    header = f"""\
# {title}
# GENERATED, not measured, by workbench/profiles/generated.py: only a function's time t0 at batch 1,
# 1 vCPU and 14 % of an A100 is a measurement, the ESG paper's (arXiv 2404.16812, from a summary).
# The rest: t = t0 * (phi * b / c^alpha + (1 - phi) * b^beta / g^gamma), g = gpuPercent / 14.
# An SLO is the sum of the t0 of the workflow's functions.
"""
    return header + "---\n".join(documents)


_SERVERS_HEAD = """\
# The servers of the sample functions, for the gateway: Triton in pods with the label app=FUNCTION.
# GENERATED by workbench/profiles/generated.py.
"""


def _head(document: Workflow | FunctionProfile) -> str:
    metadata = document.metadata
    namespace = f"namespace: {metadata.namespace}, " if metadata.namespace else ""
    return f"""\
apiVersion: {API_VERSION}
kind: {document.kind}
metadata: {{name: {metadata.name}, {namespace}annotations: {{{ANNOTATION_GENERATED}: "true"}}}}
"""


def _workflow_yaml(workflow: Workflow) -> str:
    stages = "".join(
        f"  - {{name: {stage.name}, function: {stage.function}"
        + (f", after: [{', '.join(stage.after)}]" if stage.after else "")
        + "}\n"
        for stage in workflow.spec.stages
    )
    slo = workflow.spec.slo
    return f"""\
{_head(workflow)}spec:
  slo: {{latencyMs: {slo.latency_ms:g}, objective: {slo.objective:g}}}
  stages:
{stages}"""


def _server_yaml(function: str) -> str:
    return f"""\
apiVersion: {API_VERSION}
kind: FunctionServer
metadata: {{name: {function}, namespace: default}}
spec:
  function: {function}
  selector: {{matchLabels: {{app: {function}}}}}
  protocol: http-binary
  port: 8000
"""


def _profile_yaml(profile: FunctionProfile) -> str:
    spec = profile.spec
    gpu = spec.gpus[0]
    configurations = "".join(
        f"    - {{batch: {c.batch}, cpu: {c.cpu}, gpuPercent: {c.gpu_percent}, "
        f"latencyMs: {c.latency_ms:.10g}, p95Ms: {c.p95_ms:.10g}, memoryMib: {c.memory_mib}}}\n"
        for c in gpu.configurations
    )
    return f"""\
{_head(profile)}spec:
  coldStartMs: {spec.cold_start_ms:g}
  outputMib: {spec.output_mib:g}
  gpus:
  - model: {gpu.model}
    configurations:
{configurations}"""
