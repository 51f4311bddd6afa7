"""Shares of pods: those that are chosen for all workflows, and how fast their number may grow."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.pods import PodStart, Share
from scheduler.dispatch.scaling.pod_targets import DOUBLING_MS, PodTarget
from scheduler.dispatch.scaling.scaler import PodLimits, Scaler
from scheduler.dispatch.scaling.sizing import (
    PodPrices,
    Sizing,
    WorkflowLoad,
    _sizes,
    least_memory_mib,
)
from scheduler.model.plan import Prices
from tests.dispatch.harness import SPACE, Owner
from workbench.profiles.builders import GPU, graph, profile, workflow

CHEAP, FAST = (1, 1, 20, 100.0), (1, 1, 50, 45.0)
PROFILES = {name: profile(name, [CHEAP, FAST]) for name in ("f0", "f1")}
PRICES = PodPrices(Prices())


def percents(document, limit_ms, profiles=PROFILES):
    """Return the GPU percent of each function's pods for one workflow."""
    sizing = Sizing([WorkflowLoad(document, 0.01, limit_ms)], profiles, PRICES)
    return {name: size.configuration.gpu_percent for name, size in sizing.choice().items()}


@pytest.mark.parametrize("names", [("s0", "s1"), ("s1", "s0")], ids=["forward", "backward"])
def test_stages_may_be_listed_in_any_order(names):
    """Time is that of the longest path: one function of two becomes faster, and that suffices."""
    stages = {"s0": ("f0",), "s1": ("f1", "s0")}
    document = graph({name: stages[name] for name in names})
    assert sorted(percents(document, 150.0).values()) == [20, 50]


def test_a_workflow_that_cannot_be_in_time_is_as_fast_as_it_can_be():
    assert percents(workflow([[], [0]]), 10.0) == {"f0": 50, "f1": 50}


def test_an_upgrade_that_another_one_makes_needless_is_taken_back():
    """The one with the best gain for its price comes first, and may not be enough."""
    rows = {"f0": [CHEAP, (1, 1, 21, 95.0)], "f1": [CHEAP, (1, 1, 50, 55.0)]}
    profiles = {name: profile(name, of) for name, of in rows.items()}
    assert percents(workflow([[], [0]]), 195.0, profiles) == {"f0": 21, "f1": 20}
    assert percents(workflow([[], [0]]), 160.0, profiles) == {"f0": 20, "f1": 50}


@given(gpus=st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), max_size=6))
def test_the_least_memory_is_that_of_a_gpu_of_the_model(gpus):
    """A pod that fits there fits on every GPU of its model."""
    smallest_mib = least_memory_mib(gpus)
    assert smallest_mib.items() <= set(gpus)
    assert all(smallest_mib[model] <= memory_mib for model, memory_mib in gpus)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([0.0, 400.0, 1_000.0, 1_700.0]), st.integers(0, 300)), min_size=2
    )
)
def test_pods_at_most_double_in_a_second(steps):
    """However often they are counted and however many are wanted; two seconds may overlap."""
    (size, *_) = _sizes(PROFILES["f0"], 0.01, PRICES)
    target = PodTarget(
        size, Share(GPU, 1, 20, 100), rows_per_ms=0.01, sized_rows_per_ms=0.01, time_ratio=1.0
    )
    now_ms, pods, history = 0.0, 0, []
    for pause_ms, wanted in steps:
        now_ms += pause_ms
        pods = max(pods, target.allowed(wanted, pods, now_ms))
        history.append((now_ms, pods))
    assert all(after <= max(2 * before, 1) for (_, before), (_, after) in pairwise(history))
    for i, (from_ms, before) in enumerate(history):
        within = [pods for at_ms, pods in history[i:] if at_ms - from_ms < DOUBLING_MS]
        assert max(within) <= max(4 * before, 2)


def scaler_of(*namespaces):
    """Return a scaler of a workflow in each namespace."""
    owner = Owner([*PROFILES.values()])
    for namespace in namespaces:
        document = graph({"s0": ("f0",)}, namespace=namespace, slo_ms=400.0)
        owner.dispatcher.set_workflow(document, now_ms=0.0)
    return Scaler(owner.dispatcher, PRICES)


def test_each_namespace_has_its_own_choice_of_shares():
    """With the loads of its workflows, and of no other's."""
    choices = scaler_of("a", "b").share_choices(0.0)
    assert [(c.namespace, [load.document.key[0] for load in c.loads]) for c in choices] == [
        ("a", ["a"]),
        ("b", ["b"]),
    ]


@pytest.mark.parametrize("cause", ["rate", "workflow", "limits", "failed start"])
def test_shares_are_chosen_again_in_the_namespace_concerned(cause):
    """A choice takes time, and the pods of all namespaces wait for it."""
    scaler = scaler_of("a", "b", "c")
    scaler.changes(0.0)
    dispatcher = scaler._dispatcher
    if cause == "rate":
        for _ in range(1_000):
            dispatcher.arrive(("b", "w"), None, now_ms=500.0)
    elif cause == "workflow":
        document = graph({"s0": ("f0",)}, namespace="b", slo_ms=500.0)
        dispatcher.set_workflow(document, now_ms=500.0)
    elif cause == "limits":
        scaler.set_limits(("b", "f0"), PodLimits(pooled=True))
    else:
        scaler.start_failed(PodStart(("b", "f0"), Share(GPU, 1, 20, 100)), 500.0)
    assert [choice.namespace for choice in scaler.share_choices(1_000.0)] == ["b"]


@pytest.mark.parametrize(("function", "namespaces"), [("f0", ["a", "b"]), ("f1", [])])
def test_a_profile_concerns_the_namespaces_that_use_it(function, namespaces):
    scaler = scaler_of("a", "b")
    scaler.changes(0.0)
    scaler._dispatcher.set_profile(profile(function, [CHEAP]))
    assert [choice.namespace for choice in scaler.share_choices(1_000.0)] == namespaces


def test_a_choice_that_is_not_carried_out_is_asked_for_again():
    """An owner that makes choices in a thread may be asked before it has finished."""
    scaler = scaler_of(SPACE)
    (choice,) = scaler.share_choices(0.0)
    assert len(scaler.share_choices(1_000.0)) == 1
    scaler.set_shares(choice, choice.sizes())
    assert scaler.share_choices(2_000.0) == []


def test_other_prices_need_another_choice():
    """If a GPU costs nothing next to vCPUs, the fast share is the cheap one."""
    scaler = scaler_of(SPACE)
    scaler.changes(0.0)
    scaler.set_prices(replace(PRICES, prices=Prices(1.0, 0.0)))
    (choice,) = scaler.share_choices(1_000.0)
    assert choice.sizes()["f0"].configuration.gpu_percent == 50
