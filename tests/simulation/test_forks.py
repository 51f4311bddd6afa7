"""Branches of a fork are planned together in the simulator as in the service."""

import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.search.planner import Planner, PlanRequest
from tests.simulation.harness import Poisson, run
from workbench.profiles.builders import graph
from workbench.profiles.generated import FUNCTIONS, generated_profile
from workbench.simulation.scenario import Scenario

BRANCHES = ("segmentation", "classification", "deblur", "segmentation")
SLO_MS = 330.0
STAGES = {f"branch-{i}": [function, "first"] for i, function in enumerate(BRANCHES)}
FORK = graph(
    {"first": ["super-resolution"], **STAGES, "last": ["classification", *STAGES]},
    name="fork",
    slo_ms=SLO_MS,
)


def single_requests(profile):
    """Return a profile without larger batches, since later batches would count as full."""
    gpus = tuple(
        gpu.model_copy(
            update={"configurations": tuple(c for c in gpu.configurations if c.batch == 1)}
        )
        for gpu in profile.spec.gpus
    )
    return profile.model_copy(update={"spec": profile.spec.model_copy(update={"gpus": gpus})})


DOCUMENTS = Catalogue.of([FORK, *(single_requests(generated_profile(f)) for f in FUNCTIONS)])
ARRIVALS = Poisson(500.0, seed=3, workflows=(FORK.key,))
REQUESTS = 300


def outcome(policy):
    scenario = Scenario(
        nodes=16, noise_ratio=0.0, margin_ratio=0.0, bandwidth_mib_s=1e9, resizable=True
    )
    return run(scenario, DOCUMENTS, ARRIVALS, policy, requests=REQUESTS).result


def test_a_fork_costs_what_its_first_plan_states():
    """With profiled run times every lone request is in time, and costs what is planned for it."""
    result = outcome("exact")
    plan = Planner(DOCUMENTS).plan(
        PlanRequest(
            namespace="default",
            workflow="fork",
            stage="first",
            slack_ms=SLO_MS,
            queued=1,
            k=1,
        )
    )
    assert result.hit_ratio == 1.0
    assert result.ran_dollars / REQUESTS <= 1.01 * plan.candidates[0].path_cost_dollars


@pytest.mark.slow
def test_exact_costs_less_than_the_split():
    """No branch buys time that another one has to buy as well."""
    assert outcome("exact").ran_dollars < outcome("esg").ran_dollars
