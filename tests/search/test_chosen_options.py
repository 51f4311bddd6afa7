"""What was chosen for each stage is the completion whose time and cost are told."""

from math import isclose

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.search.astar_run import graph_of, run_astar
from scheduler.search.completion import complete
from scheduler.search.dag import Dag
from scheduler.search.frontier import pareto
from scheduler.search.planner import Planner, PlanRequest
from tests.search.documents import CHAIN
from tests.search.noisy import documents
from tests.search.shapes import Shape, layered

RELATIVE = 1e-12


@settings(max_examples=80, deadline=None)
@given(
    shape=layered((1, 2)),
    seed=st.integers(0, 2**32),
    slack=st.one_of(st.floats(1.0, 3.0), st.just(1.0)),
    expansions_max=st.sampled_from((0, 3, 1_000)),
    additive=st.booleans(),
)
def test_astar(shape: Shape, seed: int, slack: float, expansions_max: int, additive: bool) -> None:
    """The options that A* chose add up to its answer, and meet the budget."""
    random = np.random.default_rng(seed)
    first, *tail = [pareto(*random.uniform(1.0, 100.0, (2, 12))) for _ in shape]
    dag = Dag.of(shape)
    graph = graph_of(dag, tail, additive=additive)
    limit_ms = slack * float(first.time_ms[0] + graph.after_ms[0])
    asked = graph, first.time_ms, first.cost, limit_ms, 3, expansions_max
    run = run_astar(*asked, additive=additive)
    for at in run.order(3).tolist():
        chosen = list(zip((first, *tail), (at, *run.options(at)[1:].tolist()), strict=True))
        path_ms = max(dag.longest_after([float(f.time_ms[option]) for f, option in chosen]))
        cost = sum(float(f.cost[option]) for f, option in chosen)
        assert isclose(path_ms, run.answer.path_ms[at], rel_tol=RELATIVE)
        assert isclose(cost, run.answer.cost[at], rel_tol=RELATIVE)
        assert path_ms <= limit_ms * (1 + RELATIVE)


def test_without_a_slack() -> None:
    """A completion within the workflow's own time is the one within the same time as a slack."""
    planner = Planner(documents(CHAIN, 40))
    asked = PlanRequest(namespace="default", workflow="w", stage="s1")
    budget_ms = planner.plan(asked).budget_ms
    within = PlanRequest(namespace="default", workflow="w", stage="s1", slack_ms=budget_ms)
    completion = complete(planner, asked)
    assert [run.stage for run in completion.runs] == ["s1", "s2", "s3"]
    assert completion == complete(planner, within)
