"""Candidates of each policy, compared with the live planner and with its description."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.plan import Prices
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from tests.examples import examples
from tests.simulation.harness import Fixed, Listed, Poisson, one_function, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.profiles.generated import GPU_MODEL, samples
from workbench.simulation.policies import planned
from workbench.simulation.policy import SchedulingRequest
from workbench.simulation.registry import policy_class
from workbench.simulation.scenario import Scenario
from workbench.simulation.setup import assemble, policy_for

SAMPLES = Catalogue.of(samples())
KEYS = tuple(SAMPLES.workflows)
KEY = ("default", "image-classification", "segmentation")


def policy(name, **changes):
    """A policy over the sample documents."""
    scenario = Scenario(**changes)
    return policy_for(assemble(scenario, SAMPLES, KEYS, 0), name, dict.fromkeys(KEYS, 0.0))


def question(**changes):
    scheduling_request = SchedulingRequest(
        KEY, 0.0, 3, 400.0, 0.0, 0, (0.0, 5.0, 2_300.0, 2_305.0), 1.0
    )
    for name, value in changes.items():
        setattr(scheduling_request, name, value)
    return scheduling_request


SHAPED = assemble(Scenario(), SAMPLES, KEYS, 0).catalogue
EXACT, ESG = policy("exact"), policy("esg")


@examples(150)
@given(
    slack_ms=st.floats(-500.0, 2_000.0),
    queued=st.integers(1, 40),
    starts_ms=st.sampled_from([(0.0,), (0.0, 1.25), (0.0, 2_300.0)]),
    mine=st.sampled_from([EXACT, ESG]),
)
def test_exact_and_esg_are_the_live_planner(slack_ms, queued, starts_ms, mine):
    """The candidates of a plan for the slack in whole ms, however often it was asked before."""
    scheduling_request = question(slack_ms=slack_ms, queued=queued, starts_ms=starts_ms)
    rules = Rules(policy=mine.name, on_lost_slo="cheapest")
    plan = Planner(SHAPED, rules).plan(
        PlanRequest(
            namespace=KEY[0],
            workflow=KEY[1],
            stage=KEY[2],
            slack_ms=float(slack_ms // 1),
            queued=queued,
            fleet=FleetCapacity.of_models([GPU_MODEL]),
            starts_ms=starts_ms,
            margin_ratio=None,
        )
    )
    answer = mine.candidates(scheduling_request)
    assert answer is mine.candidates(scheduling_request)
    assert chosen(answer) == chosen(plan.candidates)


@given(slo_ms=st.floats(0.05, 2_000.0), remaining_ratio=st.floats(0.0, 1.0))
@examples(60)
def test_rounding_takes_little_of_any_slo(slo_ms, remaining_ratio):
    """A slack is planned for as if it were at most a five-hundredth of the SLO shorter, or 1 ms."""
    rows = [(1, 1, percent, slo_ms * (1 - percent / 200)) for percent in range(1, 101)]
    catalogue = one_function(rows, slo_ms=slo_ms)
    keys = (("default", "w"),)
    assembled = assemble(quiet(), catalogue, keys, 0)
    slack_ms = remaining_ratio * slo_ms
    scheduling_request = question(key=("default", "w", "s0"), slack_ms=slack_ms, starts_ms=(0.0,))
    best = policy_for(assembled, "exact", dict.fromkeys(keys, 0.0)).candidates(scheduling_request)[
        0
    ]
    shorter_ms = min(slo_ms / 500, 1.0)
    exact_ms = [ms for *_, ms in rows if ms <= slack_ms - shorter_ms]
    assert best.stage_ms <= slack_ms or not exact_ms
    # The cheapest here is the slowest that is in time.
    assert not exact_ms or best.stage_ms >= max(exact_ms)


def test_what_is_kept_of_plans_is_bounded(monkeypatch):
    """Made again, an answer is the same."""
    monkeypatch.setattr(planned, "_CACHED_MAX", 3)
    mine = policy("exact")
    slacks_ms = [100.0 * i for i in range(1, 9)]
    first = [chosen(mine.candidates(question(slack_ms=ms))) for ms in slacks_ms]
    assert first == [chosen(mine.candidates(question(slack_ms=ms))) for ms in slacks_ms]
    assert first == [chosen(EXACT.candidates(question(slack_ms=ms))) for ms in slacks_ms]


def chosen(candidates):
    return [(c.configuration, c.gpu_model, c.start_ms) for c in candidates]


def test_without_replanning_the_slack_is_not_looked_at():
    """The stage's part of the SLO counts, whatever has happened before."""
    mine = policy("exact", replan=False)
    assert chosen(mine.candidates(question(slack_ms=1.0))) == chosen(
        mine.candidates(question(slack_ms=500.0))
    )


def test_the_minimum_configuration_is_the_minimum():
    answer = policy("minimum").candidates(question())
    assert {
        (c.configuration.batch, c.configuration.cpu, c.configuration.gpu_percent) for c in answer
    } == {(1, 1, 14)}
    assert [c.start_ms for c in answer] == [0.0, 5.0, 2_300.0, 2_305.0]


def test_random_takes_any_that_the_queue_fills():
    mine = policy("random")
    seen = {mine.candidates(question(queued=3))[0].configuration for _ in range(400)}
    assert {c.batch for c in seen} == {1, 2, 3}
    assert len({c.gpu_percent for c in seen}) > 3


def test_grandslam_splits_by_time():
    """Segmentation has the part of the SLO, less the margin, that its mean time is of all."""
    mine = policy("grandslam", margin_ratio=0.1)
    times_ms = {}
    for stage in SAMPLES.workflow(*KEY[:2]).spec.stages:
        listed = SAMPLES.profile(stage.function).spec.gpus[0].configurations
        times_ms[stage.name] = sum(c.latency_ms for c in listed) / len(listed)
    part_ms = 526.0 / 1.1 * times_ms["segmentation"] / sum(times_ms.values())
    answer = mine.candidates(question(queued=1))
    within = [
        c
        for c in SAMPLES.profile("segmentation").spec.gpus[0].configurations
        if c.batch == 1 and c.latency_ms <= part_ms
    ]
    prices = Rules().prices
    cheapest = min(
        prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, 1) for c in within
    )
    best = answer[0].configuration
    assert best.latency_ms <= part_ms
    assert prices.request_cost_dollars(
        best.latency_ms, best.cpu, best.gpu_percent, 1
    ) == pytest.approx(cheapest)


def test_grandslam_does_not_look_at_the_slack():
    mine = policy("grandslam")
    assert mine.candidates(question(slack_ms=1.0)) == mine.candidates(question(slack_ms=900.0))


def test_grandslam_takes_nearly_the_fastest_where_none_is_fast_enough():
    """The cheapest within 5 % of the fastest: the last 0.1 ms may cost half of a GPU."""
    mine = policy("grandslam", slo_factor=0.01)
    answer = mine.candidates(question(queued=1))
    listed = SAMPLES.profile("segmentation").spec.gpus[0].configurations
    fastest_ms = min(c.latency_ms for c in listed if c.batch == 1)
    assert all(c.stage_ms <= 1.05 * fastest_ms for c in answer)
    costs = [c.path_cost_dollars for c in answer[:2]]
    assert costs == sorted(costs)


def test_a_stage_that_is_not_there():
    with pytest.raises(UnknownDocumentError, match="no stage 'other'"):
        EXACT.context.profile((*KEY[:2], "other"))


class ChangesItsList(Fixed):
    """Answers with one and the same list, and puts something else into it each time."""

    name = "changes-its-list"
    answer = []  # noqa: RUF012

    def candidates(self, question):
        self.choice = {"s0": int(question.now_ms > 0)}
        self.answer[:] = super().candidates(question)
        return self.answer


def test_an_answer_is_what_it_is_when_it_is_given():
    catalogue = one_function([(1, 1, 50, 10), (1, 1, 25, 20)])
    recording = run(quiet(), catalogue, Listed([0.0, 100.0]), ChangesItsList)
    assert [span.gpu_percent for span in recording.spans] == [25, 50]


def test_the_oracle_knows_the_noise():
    """A run that will take twice its time is given what is twice as fast."""
    mine = policy("oracle")
    last = (*KEY[:2], "classification")
    scheduling_request = question(key=last, slack_ms=100.0, queued=1, starts_ms=(0.0,))
    for noise in (0.7, 1.0, 1.3):
        best = mine.candidates(replace_noise(scheduling_request, noise))[0].configuration
        assert best.latency_ms * noise <= 100.0
    slow = mine.candidates(replace_noise(scheduling_request, 1.3))[0]
    quick = mine.candidates(replace_noise(scheduling_request, 0.7))[0]
    assert slow.configuration.latency_ms < quick.configuration.latency_ms


@pytest.mark.parametrize("on_lost_slo", ["fastest", "cheapest"])
def test_the_oracle_serves_a_lost_slo_by_the_rule(on_lost_slo):
    mine = policy("oracle", rules=Rules(on_lost_slo=on_lost_slo))
    answer = mine.candidates(question(slack_ms=-1.0, starts_ms=(900.0, 2305.0, 0.0)))
    by = (lambda c: c.path_ms) if on_lost_slo == "fastest" else (lambda c: c.path_cost_dollars)
    assert [by(c) for c in answer] == sorted(by(c) for c in answer)
    assert {c.start_ms for c in answer} == {2305.0}  # any start will do


def replace_noise(scheduling_request, noise):
    return replace(scheduling_request, noise_factor=noise)


def test_the_oracle_keeps_an_slo_that_noise_breaks_for_others():
    """One stage with tight choices, and a cluster that is never full."""
    catalogue = one_function([(1, 1, p, 400 / p**0.6) for p in range(10, 101, 10)], slo_ms=40.0)
    scenario = quiet(nodes=4, noise_ratio=0.2)
    hits = {
        name: run(scenario, catalogue, Poisson(20.0, seed=3), name, requests=500).result.hit_ratio
        for name in ("oracle", "exact")
    }
    assert hits["oracle"] > 0.99 > hits["exact"]


def test_the_oracle_knows_the_noise_of_each_configuration():
    """The fastest one is in time for all runs but those that take twice its mean time."""
    rows = [(1, 1, 10, 300.0), (1, 1, 25, 200.0), (1, 1, 50, 120.0), (1, 1, 100, 60.0)]
    document = profile("f0", rows)
    (gpu,) = document.spec.gpus
    noisy = [c.model_copy(update={"p95_ms": 1.5 * c.latency_ms}) for c in gpu.configurations]
    gpus = (gpu.model_copy(update={"configurations": tuple(noisy)}),)
    spec = document.spec.model_copy(update={"gpus": gpus})
    catalogue = Catalogue.of(
        [workflow([[]], slo_ms=320.0), document.model_copy(update={"spec": spec})]
    )
    scenario = quiet(noise_ratio=0.05, profiled_noise=True)
    arrivals = Listed([400.0 * i for i in range(500)])
    assert run(scenario, catalogue, arrivals, "oracle").result.hits == 500


@pytest.mark.parametrize("name", ["esg", "exact", "minimum", "grandslam", "random", "oracle"])
def test_names_are_the_registered_ones(name):
    assert policy_class(name).name == name


@pytest.mark.parametrize("name", ["minimum", "infless", "fast-gshare"])
def test_of_models_with_the_same_figures_the_cheapest_is_taken(name):
    """Whichever comes first in the profile."""
    rows = [(1, 1, 50, 100.0)]
    documents = one_function({"dear": rows, "cheap": rows, "other": rows})
    prices = Prices(gpu_hour_dollars_of={"cheap": 0.5})
    scenario = quiet(nodes=3, gpu_models=("dear", "cheap", "other"), rules=Rules(prices=prices))
    recording = run(scenario, documents, Listed([0.0, 1_000.0, 2_000.0]), name)
    assert {span.node for span in recording.spans} == {"node-0001"}
