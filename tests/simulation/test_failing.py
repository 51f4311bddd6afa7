"""Failures of runs, and their messages."""

from importlib.metadata import EntryPoint
from math import inf, nan
from typing import ClassVar

import numpy as np
import pytest
from pydantic import ValidationError

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.plan import Configuration
from tests.simulation.harness import Fixed, Listed, one_function, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.simulation import registry
from workbench.simulation.containers.configurations import configurations_of
from workbench.simulation.engine import simulate
from workbench.simulation.errors import PolicyError, UnknownPolicyError, WorkloadError
from workbench.simulation.policies.minimum import Minimum
from workbench.simulation.policy import Policy
from workbench.simulation.scenario import Scenario, ScenarioError

CATALOGUE = one_function([(1, 1, 50, 10)])


@pytest.fixture
def registered(monkeypatch):
    """Registers a class as policy "mine", as an entry point would."""

    def register(policy):
        class Point:
            name = "mine"
            value = "somewhere:Mine"

            def load(self):
                return policy

        monkeypatch.setattr(registry, "entry_points", lambda **_: [Point()])

    return register


class Fails(Fixed):
    """At its third question."""

    name = "fails"
    calls = 0

    def candidates(self, question):
        self.calls += 1
        if self.calls == 3:
            raise ZeroDivisionError("no luck")
        return super().candidates(question)


def test_a_policy_that_fails_half_way_is_named(registered):
    """Policy, queue, time and cause; and what had ended before is kept."""
    registered(Fails)
    with pytest.raises(PolicyError) as caught:
        simulate(quiet(), CATALOGUE, Listed([0.0, 100.0, 250.0]), "mine", requests=3)
    message = str(caught.value)
    assert "policy fails" in message
    assert "default/w/s0" in message
    assert "250.000 ms" in message
    assert "ZeroDivisionError: no luck" in message
    assert caught.value.result.hits == 2
    assert caught.value.result.requests == 2


class KeepsBadly(Fixed):
    name = "keeps-badly"
    autoscales = True

    def desired_containers(self, now_ms, demand):
        raise LookupError("which?")


def test_a_failing_rescaling_is_named():
    with pytest.raises(PolicyError, match=r"keeps-badly, called to rescale at 0\.000 ms.*which"):
        run(quiet(), CATALOGUE, Listed([0.0]), KeepsBadly)


class AsksInThePast(Fixed):
    name = "past"

    def candidates(self, question):
        return ()

    def retry_at_ms(self, question):
        return question.now_ms


def test_to_be_asked_again_must_be_to_come():
    with pytest.raises(PolicyError, match="which is past"):
        run(quiet(), CATALOGUE, Listed([0.0]), AsksInThePast)


class Unheard(Fixed):
    name = "unheard"
    autoscales = True

    def desired_containers(self, now_ms, demand):
        return {}


def test_a_policy_that_never_runs_anything_ends():
    """Ten minutes of the virtual clock after the last arrival, all that waits is dropped."""
    recording = run(quiet(), CATALOGUE, Listed([0.0, 5.0]), Unheard)
    assert recording.result.dropped == 2
    assert 600_000 < recording.result.simulated_ms < 700_000


def test_an_unknown_policy_is_refused_with_those_there_are():
    with pytest.raises(UnknownPolicyError, match=r"'best'; there are esg, exact"):
        simulate(quiet(), CATALOGUE, Listed([0.0]), "best", requests=1)


def test_a_users_policy_is_found_by_its_entry_point(registered):
    registered(Minimum)
    assert "mine" in registry.policy_names()
    assert registry.policy_class("mine") is Minimum


def test_an_entry_point_that_is_no_policy_is_refused(registered):
    registered(dict)
    with pytest.raises(UnknownPolicyError, match="no class derived from Policy"):
        registry.policy_class("mine")


@pytest.mark.parametrize("name", registry.policy_names())
def test_every_listed_policy_can_be_imported(name):
    assert issubclass(registry.policy_class(name), Policy)


@pytest.mark.parametrize(
    ("arrivals", "problem"),
    [
        (Listed([5.0, 4.0]), "go back in time"),
        (Listed([5.0, 4.0], chunk=1), "go back in time"),
        (Listed([nan]), "go back in time"),
        (Listed([0.0], [1]), "name workflow 1 of 1"),
    ],
)
def test_arrivals_that_make_no_sense(arrivals, problem):
    with pytest.raises(WorkloadError, match=problem):
        simulate(quiet(), CATALOGUE, arrivals, "minimum", requests=9)


def test_a_workflow_that_is_not_there():
    arrivals = Listed([0.0], [0], (("default", "unused"),))
    with pytest.raises(UnknownDocumentError, match="default/unused"):
        simulate(quiet(), CATALOGUE, arrivals, "minimum", requests=1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"gpu_models": ("H100",)}, "f0 is profiled on gpu, and the cluster has H100"),
        ({"memory_mib": 1_100}, "no node can hold function f0: .* has 16 vCPU and 76 MiB"),
        ({"cpus": 1}, "no node can hold function f0: .* takes 2 vCPU"),
    ],
)
def test_a_function_that_fits_nowhere(changes, problem):
    catalogue = one_function([(1, 2, 50, 10)])
    with pytest.raises(ScenarioError, match=problem):
        simulate(quiet(**changes), catalogue, Listed([0.0]), "minimum", requests=1)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("nodes", 0),
        ("slo_factor", 0.0),
        ("slo_factor", inf),
        ("noise_ratio", -0.1),
        ("noise_ratio", nan),
        ("bandwidth_mib_s", 0.0),
        ("give_up_factor", nan),
        ("gpu_models", ()),
        ("keep_alive_ms", inf),
        ("misses_max", -1),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(setting, value):
    with pytest.raises(ValidationError) as caught:
        Scenario(**{setting: value})
    assert [error["loc"] for error in caught.value.errors()] == [(setting,)]


def test_fewer_arrivals_than_asked_for():
    """The run ends with the last of them."""
    recording = run(quiet(), CATALOGUE, Listed([0.0, 1.0]), requests=100)
    assert recording.result.requests == 2


def test_no_request_at_all():
    recording = run(quiet(), CATALOGUE, Listed([]))
    assert recording.result.requests == 0
    assert recording.result.hit_ratio == 0.0
    assert recording.result.latency.quantile(0.99) == 0.0
    assert recording.result.as_json()["gpu_utilisation"] == []


def test_unused_documents_may_be_wrong_for_the_cluster():
    """Only the functions of workflows that arrive must fit."""
    unused = workflow([[]], name="unused", functions=["f1"])
    too_large = profile("f1", [(1, 99, 50, 10)])
    catalogue = Catalogue.of(
        [*CATALOGUE.workflows.values(), *CATALOGUE.profiles.values(), unused, too_large]
    )
    assert run(quiet(), catalogue, Listed([0.0])).result.hits == 1


class KeepsUnknown(Fixed):
    """Wants what the profile does not have, or for a pool that is not there."""

    name = "keeps-unknown"
    autoscales = True
    wanted: ClassVar = {}

    def desired_containers(self, now_ms, demand):
        return self.wanted


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({("default", "f0"): {Configuration(9, 9, 9, 9, 9.0): 1}}, "f0 has no Configuration"),
        ({("default", "f9"): {}}, None),
        ({("default", "f9"): {Configuration(1, 1, 50, 100, 10.0): 1}}, "KeyError"),
    ],
)
def test_a_rescaling_to_what_is_not_there(wanted, problem):
    policy = type("KeepsUnknown", (KeepsUnknown,), {"wanted": wanted})
    if problem is None:
        assert run(quiet(), CATALOGUE, Listed([0.0]), policy).result.dropped == 1
    else:
        with pytest.raises(PolicyError, match=f"keeps-unknown, called to rescale.*{problem}"):
            run(quiet(), CATALOGUE, Listed([0.0]), policy)


class DelaysBadly(Fixed):
    name = "delays-badly"

    def prewarm_delay_ms(self, key):
        raise ArithmeticError("when?")


def test_a_failing_delay_is_named():
    with pytest.raises(PolicyError, match=r"delays-badly, called for queue default/w/s0.*when"):
        run(quiet(prewarm=True), CATALOGUE, Listed([0.0]), DelaysBadly)


def test_a_late_last_arrival_is_not_hopeless():
    """The containers were given up in a pause of an hour; there is time to start one again."""

    class OnDemand(Fixed):
        name = "on-demand"
        autoscales = True

        def desired_containers(self, now_ms, demand):
            first = configurations_of(self.context.profile(("default", "w", "s0")).spec.gpus[0])[0]
            return {key: {first: 1} for key, seen in demand.items() if seen.queued}

    recording = run(quiet(), CATALOGUE, Listed([0.0, 3_600_000.0]), OnDemand)
    assert recording.result.dropped == 0
    assert recording.requests[1].queue_ms <= 10_000.0


def test_an_entry_point_that_cannot_be_loaded(monkeypatch):
    point = EntryPoint("broken", "no.such.module:Policy", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda **_: [point])
    with pytest.raises(UnknownPolicyError, match=r"no\.such\.module:Policy cannot be loaded"):
        registry.policy_class("broken")


def test_a_chunk_whose_arrays_differ_in_length():
    class Uneven(Listed):
        def chunks(self):
            yield np.zeros(2), np.zeros(1, np.int32)

    with pytest.raises(WorkloadError, match="2 times and 1 workflows"):
        run(quiet(), CATALOGUE, Uneven([0.0]))


def test_empty_chunks_are_passed_over():
    class Gappy(Listed):
        def chunks(self):
            yield np.zeros(0), np.zeros(0, np.int32)
            yield from super().chunks()
            yield np.zeros(0), np.zeros(0, np.int32)

    assert run(quiet(), CATALOGUE, Gappy([0.0, 20.0])).result.hits == 2
