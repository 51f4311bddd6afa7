"""Plans over what is warm: a change makes those again that depend on it, and no others."""

import pytest

from scheduler.dispatch.pods import Share
from scheduler.dispatch.run_times import Correction
from scheduler.dispatch.share_classes import ShareClass
from scheduler.dispatch.warm_plans import WarmPlans
from scheduler.search.rules import Rules
from workbench.profiles.builders import GPU, profile, workflow

ROWS = [
    (batch, cpu, percent, 80 * batch**0.6 / (percent / 20) ** 0.7 / cpu**0.1)
    for batch in (1, 2, 4)
    for cpu, percent in ((1, 20), (2, 40), (4, 80))
]
PROFILES = {name: profile(name, ROWS) for name in ("f0", "f1", "f2", "f3")}
FIRST, SECOND = (
    workflow([[], [0]], name=name, functions=functions, slo_ms=800.0)
    for name, functions in (("first", ["f0", "f1"]), ("second", ["f2", "f3"]))
)
STAGES = [(w.key, stage.name) for w in (FIRST, SECOND) for stage in w.spec.stages]


def slow(function, ratio):
    """Return the classes of pods of a small share whose runs take longer."""
    share = Share(GPU, 1, 20, 800)
    return [ShareClass(share, PROFILES[function], Correction(ratio, None))]


@pytest.fixture
def plans():
    return WarmPlans({FIRST.key: FIRST, SECOND.key: SECOND}, dict(PROFILES), Rules())


def test_plans_of_other_functions_stay(plans):
    """A correction of one function does not make the plans of the whole namespace again."""
    before = {stage: plans.stage(*stage) for stage in STAGES}
    plans.set_classes("f1", slow("f1", 1.5))
    for stage in STAGES:
        assert (plans.stage(*stage) is before[stage]) == (stage[0] == SECOND.key)


def test_plans_are_those_of_new_ones(plans):
    """After any changes, plans equal those that are made from nothing."""
    for function, ratio in (("f1", 1.5), ("f2", 0.7), ("f1", 2.0)):
        for stage in STAGES:
            plans.stage(*stage)
        plans.set_classes(function, slow(function, ratio))
    new = WarmPlans({FIRST.key: FIRST, SECOND.key: SECOND}, dict(PROFILES), Rules())
    new.set_classes("f2", slow("f2", 0.7))
    new.set_classes("f1", slow("f1", 2.0))
    assert [plans.stage(*stage) for stage in STAGES] == [new.stage(*stage) for stage in STAGES]


def test_a_function_whose_pods_end_has_its_whole_profile(plans):
    """A function without a pod may get any share again."""
    before = [plans.stage(*stage) for stage in STAGES]
    plans.set_classes("f1", slow("f1", 1.5))
    assert [plans.stage(*stage) for stage in STAGES] != before
    plans.set_classes("f1", [])
    assert [plans.stage(*stage) for stage in STAGES] == before
