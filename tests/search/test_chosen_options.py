"""The options of a completion add up to its reported time and cost."""

from math import isclose

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.search.astar_run import graph_of, run_astar
from scheduler.search.completion import complete
from scheduler.search.dag import Dag
from scheduler.search.frontier import pareto
from scheduler.search.graph import Query
from scheduler.search.planner import Planner, PlanRequest
from tests.search.factories import CHAIN, Shape, layered, noisy_catalogue

RELATIVE = 1e-12


@settings(max_examples=80, deadline=None)
@given(
    shape=layered((1, 2)),
    seed=st.integers(0, 2**32),
    slack_factor=st.one_of(st.floats(1.0, 3.0), st.just(1.0)),
    expansions_max=st.sampled_from((0, 3, 1_000)),
    additive=st.booleans(),
)
def test_astar(
    shape: Shape, seed: int, slack_factor: float, expansions_max: int, additive: bool
) -> None:
    """The options that A* chose add up to its result and meet the budget."""
    random = np.random.default_rng(seed)
    first, *tail = [pareto(*random.uniform(1.0, 100.0, (2, 12))) for _ in shape]
    dag = Dag.of(shape)
    graph = graph_of(dag, tail, additive=additive)
    limit_ms = slack_factor * float(first.time_ms[0] + graph.after_ms[0])
    query = Query(first.time_ms, first.cost, limit_ms, expansions_max, additive)
    run = run_astar(graph, query, 3)
    for at in run.order(3).tolist():
        chosen = list(zip((first, *tail), (at, *run.options(at)[1:].tolist()), strict=True))
        path_ms = max(dag.longest_after([float(f.time_ms[option]) for f, option in chosen]))
        cost = sum(float(f.cost[option]) for f, option in chosen)
        assert isclose(path_ms, run.best.path_ms[at], rel_tol=RELATIVE)
        assert isclose(cost, run.best.cost[at], rel_tol=RELATIVE)
        assert path_ms <= limit_ms * (1 + RELATIVE)


def test_without_a_slack() -> None:
    """The completion without a slack equals that with the workflow's own budget as the slack."""
    planner = Planner(noisy_catalogue(CHAIN, 40))
    without = PlanRequest(namespace="default", workflow="w", stage="s1")
    budget_ms = planner.plan(without).budget_ms
    within = PlanRequest(namespace="default", workflow="w", stage="s1", slack_ms=budget_ms)
    completion = complete(planner, without)
    assert [run.stage for run in completion.runs] == ["s1", "s2", "s3"]
    assert completion == complete(planner, within)
