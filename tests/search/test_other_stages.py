"""Other stages of an instance: caches, and siblings in other orders than series and parallel."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.progress import UNKNOWN_PROGRESS, InstanceProgress
from scheduler.search import other_stages
from scheduler.search.planner import Planner
from scheduler.search.reduction import completion_set
from tests.examples import examples
from tests.search import naive
from tests.search.factories import (
    FORKS,
    N_SHAPE,
    any_order,
    catalogues,
    fork_join,
    noisy_catalogue,
)
from tests.search.harness import assert_agrees, plan_request

# Stage 0 beside a, b, c after both, d after b; alone, and with a last stage after all.
BESIDE_N = ((), (), (), (1, 2), (2,))
JOINED_WITH_N = (*BESIDE_N, (0, 3, 4))
PAIR_IN_N = ((), (), (), (0, 1, 2), (1, 2))  # stages 1 and 2 act as one entry of an N


@examples(60)
@given(
    st.one_of(
        catalogues(after=BESIDE_N, configurations_max=2),
        catalogues(after=JOINED_WITH_N, configurations_max=2),
        catalogues(after=PAIR_IN_N, configurations_max=2),
    ),
    st.floats(1.0, 3.0),
    st.sampled_from(("s1", "s2")),
)
def test_a_sibling_in_another_order_runs(
    catalogue: Catalogue, slack_factor: float, running: str
) -> None:
    """No join gives the frontier of siblings in the shape of an N of which a stage runs."""
    planner = Planner(catalogue)
    slack_ms = slack_factor * planner.fastest_ms("default", "w")
    request = plan_request(slack_ms=slack_ms)
    workflow = catalogue.workflow("default", "w")
    stage = next(stage for stage in workflow.spec.stages if stage.name == running)
    configurations = catalogue.profile(stage.function).spec.gpus[0].configurations
    until_ms = min(c.latency_ms for c in configurations)
    progress = InstanceProgress(running_ms={running: until_ms})
    request = replace(request, progress=progress)
    assert_agrees(catalogue, request, planner.plan(request))


@examples(60)
@given(
    catalogues(after=N_SHAPE, configurations_max=3),
    st.floats(1.0, 2.0),
    st.floats(0.01, 1.0),
    st.sampled_from(("s1", "s2")),
)
def test_no_slo_is_given_up_for_a_margin_in_another_order(
    catalogue: Catalogue, slack_factor: float, margin_ratio: float, stage: str
) -> None:
    """With a margin that does not fit, an instance with a sibling that waits is in time."""
    planner = Planner(catalogue)
    request = plan_request(stage=stage)
    completions = naive.completions(catalogue, planner.rules.prices, request)
    slack_ms = slack_factor * min(max(c.path_ms, c.others_ms) for c in completions)
    requests = [
        replace(request, slack_ms=slack_ms, margin_ratio=ratio) for ratio in (0.0, margin_ratio)
    ]
    without, reduced = map(planner.plan, requests)
    assert_agrees(catalogue, requests[0], without)
    assert without.feasible
    assert reduced.feasible


@examples(60)
@given(
    st.one_of(catalogues(after=shape, configurations_max=2) for shape in (FORKS, N_SHAPE)),
    st.floats(0.1, 2.0),
    st.sampled_from(({"margin_ratio": 0.5}, {"later_waits_ms": 1e9})),
    st.sampled_from(("s0", "s1", "s2", "s3")),
)
def test_no_slo_is_given_up_for_a_sibling_that_may_have_ended(
    catalogue: Catalogue, slack_factor: float, reserve: dict[str, float], stage: str
) -> None:
    """Without reports of siblings, a reserve that does not fit is reduced, late as they are."""
    planner = Planner(catalogue)
    slack_ms = slack_factor * planner.fastest_ms("default", "w")
    request = plan_request(stage=stage, slack_ms=slack_ms, progress=UNKNOWN_PROGRESS)
    without, reduced = planner.plan(request), planner.plan(replace(request, **reserve))
    assert reduced.feasible == without.feasible


def test_frontiers_of_old_instances_are_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a full cache a plan is the same."""
    documents = noisy_catalogue(fork_join(6), 8)
    planner = Planner(documents)
    slack_ms = 1.5 * planner.fastest_ms("default", "w")
    requests = [
        plan_request(
            stage="s1",
            slack_ms=slack_ms,
            progress=InstanceProgress(frozenset(f"s{v}" for v in range(2, ended))),
        )
        for ended in range(2, 6)
    ]
    plans = [planner.plan(request) for request in requests]
    monkeypatch.setattr(other_stages, "FRONTIERS_MAX", 1)
    planner = Planner(documents)
    assert [planner.plan(request) for request in reversed(requests)] == plans[::-1]


@examples(40)
@given(st.integers(6, 10), st.integers(0, 2**32), st.data())
def test_no_plan_reduces_an_order(stages: int, seed: int, data: st.DataObject) -> None:
    """A prepared workflow has all frontiers, whatever the progress of an instance."""
    documents = noisy_catalogue(any_order(stages, seed), 4, seed)
    planner = Planner(documents)
    planner.workflow("default", "w").prepare(None)
    stage = f"s{data.draw(st.integers(0, stages - 1))}"
    ended = data.draw(st.sets(st.sampled_from([f"s{v}" for v in range(stages)])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completion_set, "reduced_frontier", None)
        plan = planner.plan(plan_request(stage=stage, progress=InstanceProgress(frozenset(ended))))
    assert plan.candidates
