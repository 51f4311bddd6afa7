"""A workflow under one configuration a stage, and policies that fix one."""

import numpy as np
import pytest

from tests.simulation.policies.factories import catalogue, context, request, sizes
from workbench.simulation.policies.end_to_end import EndToEnd, log_normal
from workbench.simulation.policies.fixed import FixedPolicy

DIAMOND = [[], [0], [0], [1, 2]]
ROWS = [[(1, 1, 10, t)] for t in (100.0, 200.0, 300.0, 50.0)]


def whole(documents, **changes):
    return EndToEnd(context(documents, **changes), documents.workflow("default", "w"))


def test_stages_end_when_all_before_them_have():
    """The third stage's noise makes the second one the slower branch."""
    workflow = whole(catalogue(ROWS, after=DIAMOND))
    noise = np.array([[1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 0.1, 1.0]])
    assert workflow.ends_ms((0, 0, 0, 0), noise).tolist() == [
        [100.0, 300.0, 400.0, 450.0],
        [200.0, 400.0, 230.0, 450.0],
    ]
    assert workflow.times_ms((0, 0, 0, 0), noise).tolist() == [450.0, 450.0]


def test_each_stage_is_paid_for_as_long_as_it_ran():
    """All stages hold one vCPU and a tenth of a GPU: two dollars an hour."""
    workflow = whole(catalogue(ROWS, after=DIAMOND))
    noise = np.array([[1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 0.1, 1.0]])
    dollars_ms = 2.0 / 3_600_000
    costs = workflow.costs((0, 0, 0, 0), noise)
    assert costs == pytest.approx([650.0 * dollars_ms, 480.0 * dollars_ms])
    assert workflow.cost_dollars((0, 0, 0, 0)) == pytest.approx(650.0 * dollars_ms)


def test_what_is_planned_is_told_from_each_stage_to_the_end():
    workflow = whole(catalogue(ROWS, after=DIAMOND)).planned((0, 0, 0, 0))
    totals = {
        key[2]: (c.path_ms, c.path_cost_dollars * 3_600_000 / 2.0) for key, c in workflow.items()
    }
    assert totals == {
        "s0": (450.0, pytest.approx(650.0)),
        "s1": (250.0, pytest.approx(250.0)),
        "s2": (350.0, pytest.approx(350.0)),
        "s3": (50.0, pytest.approx(50.0)),
    }


def test_a_batch_counts_the_time_in_which_it_fills():
    """At 10 requests/s three more come in 300 ms; no batch waits longer than the SLO."""
    workflow = whole(catalogue([[(1, 1, 10, 50.0), (4, 1, 10, 80.0), (16, 1, 10, 90.0)]]))
    plain = np.ones((1, 1))
    assert [workflow.times_ms((i,), plain)[0] for i in range(3)] == [50.0, 380.0, 1_090.0]


def test_where_nothing_is_expected_only_batches_of_one_do_not_wait():
    workflow = whole(catalogue([[(1, 1, 10, 50.0), (2, 1, 10, 80.0)]]), rate_rps=0.0)
    assert [workflow.filling_ms(candidate) for candidate in workflow.options[0]] == [0.0, 1_000.0]


def test_each_stage_is_on_the_model_where_its_minimum_costs_least():
    """A model that the cluster has not does not count."""
    rows = {"a": [(1, 1, 10, 90.0)], "b": [(1, 1, 10, 80.0), (1, 2, 10, 70.0)]}
    workflow = whole(catalogue([rows | {"c": [(1, 1, 10, 1.0)]}]), models=("a", "b"))
    assert [(c.gpu_model, c.stage_ms) for c in workflow.options[0]] == [("b", 80.0), ("b", 70.0)]


def test_noise_is_one_in_the_mean():
    noise = log_normal(0.3, (40_000, 2), np.random.default_rng(1))
    assert noise.mean() == pytest.approx(1.0, abs=0.01)
    assert np.log(noise).std() == pytest.approx(0.3, abs=0.01)


class Last(FixedPolicy):
    """The last configuration of each stage."""

    name = "last"

    def _choose(self, whole):
        return tuple(len(listed) - 1 for listed in whole.options)


def last():
    return Last(context(catalogue([[(1, 1, 10, 50.0), (4, 1, 20, 80.0)]])))


def test_a_full_batch_runs_at_once_and_another_when_it_should_have_been_full():
    """At 10 requests/s a batch of four is given 300 ms."""
    tested = last()
    assert sizes(tested.candidates(request(queued=4))) == [(4, 1, 20)]
    early = request(queued=3, waited_ms=299.0, now_ms=2_000.0)
    assert tested.candidates(early) == ()
    assert tested.retry_at_ms(early) == 2_001.0
    assert sizes(tested.candidates(request(queued=3, waited_ms=300.0))) == [(4, 1, 20)]


def test_the_time_of_waiting_ends_in_spite_of_rounding():
    """The clock says when to ask again; the wait that it makes of that is a difference."""
    tested = last()
    since_ms = 123_456_789.1
    queue_state = request(queued=1, waited_ms=0.0, now_ms=since_ms)
    now_ms = tested.retry_at_ms(queue_state)
    again = request(queued=1, waited_ms=now_ms - since_ms, now_ms=now_ms)
    assert len(tested.candidates(again)) == 1


def test_warm_places_come_first_and_equal_questions_have_one_answer():
    tested = last()
    queue_state = request(queued=4, starts_ms=(0.0, 900.0))
    assert [candidate.start_ms for candidate in tested.candidates(queue_state)] == [0.0, 900.0]
    assert tested.candidates(queue_state) is tested.candidates(queue_state)
