"""Documents as a scenario changes them: scaled SLOs, and configurations that the cluster can hold.

Policies see this catalogue alone, so that each plans with configurations that can be granted.
"""

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, GpuProfile, Workflow
from scheduler.model.message_text import listed
from scheduler.search.margin import P95_Z, quantile_ratio
from workbench.simulation.scenario import Scenario, ScenarioError, Sharing

SEVENTHS = 7  # of an A100 under MIG


def granted_percent(percent: int, sharing: Sharing) -> int:
    """Return the GPU share that a configuration of so many percent holds."""
    if sharing == "percent":
        return percent
    if sharing == "whole":
        return 100
    return -(-percent * SEVENTHS // 100) * 100 // SEVENTHS


def shaped(
    catalogue: Catalogue, scenario: Scenario, workflows: tuple[tuple[str, str], ...]
) -> Catalogue:
    """Return the workflows that arrive and their functions' profiles on the cluster's GPUs.

    Raises:
        UnknownDocumentError: a workflow or a profile does not exist.
        ScenarioError: a function has no configuration that the cluster could ever hold.
    """
    scaled = [_scaled(catalogue.workflow(*key), scenario) for key in dict.fromkeys(workflows)]
    functions = sorted({stage.function for workflow in scaled for stage in workflow.spec.stages})
    profiles = [_granted(catalogue.profile(function), scenario) for function in functions]
    return Catalogue.of([*scaled, *profiles])


def _scaled(workflow: Workflow, scenario: Scenario) -> Workflow:
    slo = workflow.spec.slo
    changes = {"latency_ms": slo.latency_ms * scenario.slo_factor}
    if scenario.objective is not None:
        changes["objective"] = scenario.objective
    scaled = slo.model_copy(update=changes)
    spec = workflow.spec.model_copy(update={"slo": scaled})
    return workflow.model_copy(update={"spec": spec})


def _granted(profile: FunctionProfile, scenario: Scenario) -> FunctionProfile:
    function = profile.metadata.name
    models = {shape.gpu_model for shape in scenario.node_shapes}
    simulated = [gpu for gpu in profile.spec.gpus if gpu.model in models]
    if not simulated:
        profiled = listed(sorted(gpu.model for gpu in profile.spec.gpus))
        raise ScenarioError(
            f"function {function} is profiled on {profiled}, and the cluster has "
            f"{listed(sorted(models))}; profile it on a model that it has"
        )
    gpus = tuple(shaped for gpu in simulated if (shaped := _grantable(gpu, scenario)) is not None)
    if not gpus:
        model = simulated[0].model
        refusal = scenario.fleet.refusal(model, simulated[0].configurations)
        raise ScenarioError(f"no node can hold function {function}: {refusal}")
    spec = profile.spec.model_copy(update={"gpus": gpus})
    return profile.model_copy(update={"spec": spec})


def _grantable(gpu: GpuProfile, scenario: Scenario) -> GpuProfile | None:
    """Round up the shares; of several configurations with one share, the largest one runs.

    The 95th percentiles are those of the simulated noise, as a measurement of these runs gives,
    or the profile's where that is the noise.
    """
    fleet, p95_ratio = scenario.fleet, quantile_ratio(P95_Z, scenario.noise_ratio)
    granted = [
        c.model_copy(
            update={
                "gpu_percent": granted_percent(c.gpu_percent, scenario.sharing),
                "p95_ms": (scenario.profiled_noise and c.p95_ms) or c.latency_ms * p95_ratio,
            }
        )
        for c in sorted(gpu.configurations, key=lambda c: c.gpu_percent)
    ]
    fitting = [c for c in granted if fleet.holds(gpu.model, c)]
    if not scenario.batching:
        smallest = min((c.batch for c in fitting), default=1)
        fitting = [c for c in fitting if c.batch == smallest]
    by_point = {(c.batch, c.cpu, c.gpu_percent): c for c in fitting}
    if not by_point:
        return None
    return gpu.model_copy(update={"sparse": True, "configurations": tuple(by_point.values())})
