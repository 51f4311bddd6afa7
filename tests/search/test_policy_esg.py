"""Policy esg, the paper's method: one group at a time, within the group's part of the SLO."""

from dataclasses import replace
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.search.chains.slo_split import groups
from scheduler.search.dag import numbered
from scheduler.search.planner import Planner
from scheduler.search.rules import Rules
from tests.examples import examples
from tests.search.factories import CHAIN, catalogues
from tests.search.harness import assert_agrees, plan_request
from workbench.profiles.builders import chain, profile, workflow

ROUNDING = 1e-12
AROUND_A_FORK = ((), (0,), (1,), (1,), (2,), (3,), (4, 5))
quick = examples(60)
CATALOGUES = st.one_of(
    catalogues(after=CHAIN, configurations_max=4),
    catalogues(after=AROUND_A_FORK, configurations_max=4),
    catalogues(configurations_max=4),
)
SIZES = st.integers(1, 4)


def _groups(documents: Catalogue, size: int) -> list[list[str]]:
    names, dag = numbered(documents.workflow("default", "w"))
    return [[names[v] for v in group] for group in groups(dag, size)]


@quick
@given(CATALOGUES, SIZES, st.data())
def test_a_group_is_planned_alone(documents: Catalogue, size: int, data: st.DataObject) -> None:
    """K, the costs and the completions are those of brute force over the rest of the group.

    Its time ends at the group's deadline; the slack is the workflow's without the later groups.
    """
    planner = Planner(documents, Rules(policy="esg", group_size=size))
    budgets_ms = planner.budgets_ms("default", "w")
    spec = documents.workflow("default", "w").spec
    group = data.draw(st.sampled_from(_groups(documents, size)))
    remaining = group[data.draw(st.integers(0, len(group) - 1)) :]
    slack_ms = data.draw(st.one_of(st.none(), st.floats(0.0, 2.0 * spec.slo.latency_ms)))
    k = data.draw(st.sampled_from((1, 2, 5)))
    request = plan_request(stage=remaining[0], slack_ms=slack_ms, k=k)
    plan = planner.plan(request)
    slo_ms, due_ms = spec.slo.latency_ms, budgets_ms[remaining[-1]][1]
    passed_ms = budgets_ms[remaining[0]][0] if slack_ms is None else slo_ms - slack_ms
    assert plan.budget_ms is not None
    assert isclose(plan.budget_ms, due_ms - passed_ms, rel_tol=1e-9, abs_tol=ROUNDING * slo_ms)
    function = {stage.name: stage.function for stage in spec.stages}
    alone = workflow(chain(len(remaining)), functions=[function[name] for name in remaining])
    group_alone = Catalogue.of([alone, *documents.profiles.values()])
    assert_agrees(group_alone, replace(request, stage="s0"), plan)


@quick
@given(CATALOGUES, SIZES, st.floats(1.0, 6.0), st.data())
def test_every_group_ends_when_it_is_due(
    documents: Catalogue, size: int, slack_factor: float, data: st.DataObject
) -> None:
    """Each stage is planned with the remaining slack, and any of its candidates runs.

    The SLO is met, unless a group has no feasible plan at its start.
    """
    slo_ms = slack_factor * Planner(documents).fastest_ms("default", "w")
    before = {stage.name: stage.after for stage in documents.workflow("default", "w").spec.stages}
    shape = [[int(p.removeprefix("s")) for p in after] for after in before.values()]
    documents = Catalogue.of([workflow(shape, slo_ms=slo_ms), *documents.profiles.values()])
    planner = Planner(documents, Rules(policy="esg", group_size=size))
    budgets_ms = planner.budgets_ms("default", "w")
    ends_ms: dict[str, float] = {}
    for group in _groups(documents, size):
        for name in group:
            started_ms = max((ends_ms[p] for p in before[name]), default=0.0)
            plan = planner.plan(plan_request(stage=name, slack_ms=slo_ms - started_ms))
            if not plan.feasible:
                assert name == group[0], "a group that began in time stays in time"
                return
            candidate = data.draw(st.sampled_from(plan.candidates))
            ends_ms[name] = started_ms + candidate.stage_ms
        due_ms = budgets_ms[group[-1]][1]
        assert ends_ms[group[-1]] <= due_ms * (1 + 1e-9) + ROUNDING * slo_ms
    assert max(ends_ms.values()) <= slo_ms * (1 + 1e-9)


@pytest.mark.parametrize(
    ("after", "times_ms"),
    [
        ([[], [0], [1], [2]], (1.0, 1.0, 3_600_000.0, 0.75)),
        ([[], [0], []], (256.0, 0.001, 1.0)),
    ],
)
def test_a_short_stage_behind_a_long_one_is_in_time(
    after: list[list[int]], times_ms: tuple[float, ...]
) -> None:
    """The slack of the whole workflow, less the long stage, has a rounding error."""
    profiles = [profile(f"f{i}", [(1, 1, 10, ms)]) for i, ms in enumerate(times_ms)]
    slo_ms = Planner(Catalogue.of([workflow(after), *profiles])).fastest_ms("default", "w")
    documents = Catalogue.of([workflow(after, slo_ms=slo_ms), *profiles])
    planner = Planner(documents, Rules(policy="esg", group_size=2))
    ends_ms: list[float] = []
    for number, before in enumerate(after):
        begin_ms = max((ends_ms[p] for p in before), default=0.0)
        assert planner.plan(plan_request(stage=f"s{number}", slack_ms=slo_ms - begin_ms)).feasible
        ends_ms.append(begin_ms + times_ms[number])
