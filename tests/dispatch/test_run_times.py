"""Run times as observed: the correction of a function's profile."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.run_times import (
    RATIO_MAX,
    RUNS_MIN,
    SPREAD_RUNS_MIN,
    STEP_RATIO,
    Correction,
    RunTimes,
)
from scheduler.dispatch.scaling.scaler import Scaler
from scheduler.dispatch.scaling.sizing import PodPrices
from scheduler.dispatch.share_classes import Pool
from scheduler.model.plan import Prices
from tests.dispatch.harness import SPACE, Owner
from workbench.profiles.builders import profile, workflow

KEY = (SPACE, "f0")
ROWS = [(1, 1, 50, 40.0), (2, 1, 50, 60.0)]


def corrections(ratios):
    """All corrections that are published for runs with these ratios."""
    run_times = RunTimes()
    return [run_times.correction for ratio in ratios if run_times.observe(40.0 * ratio, 40.0)]


@given(ratio=st.floats(1.0 / RATIO_MAX, RATIO_MAX))
def test_equal_runs_are_the_correction(ratio):
    """A steady difference is known after the first few runs; a small one changes nothing."""
    published = corrections([ratio] * RUNS_MIN)
    if abs(ratio - 1.0) > STEP_RATIO * 1.01:
        assert [c.ratio for c in published] == [pytest.approx(ratio)]
    elif abs(ratio - 1.0) < STEP_RATIO * 0.99:
        assert published == []


@given(
    mean=st.sampled_from([0.6, 1.0, 1.5]),
    sigma=st.sampled_from([0.02, 0.1, 0.3]),
    seed=st.integers(0, 10_000),
)
def test_mean_and_spread_of_noisy_runs_are_found_in_few_steps(mean, sigma, seed):
    """The correction comes near the mean, and plans are made again a few times only."""
    noise = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, 500)
    published = corrections(mean * noise)
    last = published[-1]
    assert last.ratio == pytest.approx(mean, rel=max(STEP_RATIO, sigma) * 1.5)
    assert last.spread_ratio == pytest.approx(sigma, rel=0.75, abs=0.02)
    assert len(published) <= 12


def test_a_run_that_hangs_counts_as_a_slow_one():
    """One run of a minute does not make a function four times slower."""
    published = corrections([1.0] * 20 + [1_500.0] + [1.0] * 20)
    assert all(c.ratio < 1.0 + RATIO_MAX / 20 for c in published)


def test_changed_times_replace_the_known_ones():
    """Nodes that become slow are followed within some dozens of runs, and back."""
    published = corrections([1.0] * 200 + [2.0] * 300 + [1.0] * 300)
    ratios = [c.ratio for c in published]
    assert max(ratios) == pytest.approx(2.0, rel=2 * STEP_RATIO)
    assert ratios[-1] == pytest.approx(1.0, rel=2 * STEP_RATIO)


def test_a_correction_scales_every_configuration():
    """Times and percentiles follow; without an observed spread the profile's remains."""
    document = profile("f0", ROWS)
    run_times = RunTimes()
    for _ in range(RUNS_MIN):
        run_times.observe(60.0, 40.0)
    expected = run_times.correction.profile(document).spec.gpus[0].configurations
    assert [c.latency_ms for c in expected] == pytest.approx([60.0, 90.0])
    assert [c.p95_ms for c in expected] == [None, None]
    for i in range(100):
        run_times.observe(60.0 * (1.2 if i % 2 else 0.8), 40.0)
    expected = run_times.correction.profile(document).spec.gpus[0].configurations
    assert all(1.2 < c.p95_ms / c.latency_ms < 1.5 for c in expected)
    assert document.spec.gpus[0].configurations[0].latency_ms == 40.0


def test_percentiles_of_the_profile_follow_the_mean():
    """Until the spread is known, a run that takes twice as long has twice the 95th percentile."""
    (point,) = profile("f0", ROWS[:1]).spec.gpus[0].configurations
    expected = Correction(2.0).configuration(point.model_copy(update={"p95_ms": 50.0}))
    assert (expected.latency_ms, expected.p95_ms) == (80.0, 100.0)
    assert Correction(2.0).configuration(point).p95_ms is None


def serve(owner, ratio, runs, *, begin_ms=0.0):
    """Run single requests one after the other, each so many times as long as its profile says."""
    now_ms = begin_ms
    for _ in range(runs):
        owner.arrive(now_ms=now_ms)
        run = owner.runs[-1]
        now_ms += run.profiled_ms * ratio
        owner.dispatcher.run_ended(run, now_ms)
    return now_ms


def test_the_dispatcher_expects_what_it_observes():
    """After some slow runs the predicted end is later; the profile's time stays in the run."""
    owner = Owner([profile("f0", ROWS), workflow([[]])])
    owner.pod("p")
    now_ms = serve(owner, 2.0, RUNS_MIN + 1)
    owner.arrive(now_ms=now_ms)
    run = owner.runs[-1]
    assert (run.profiled_ms, run.latency_ms) == (40.0, pytest.approx(80.0))
    assert run.end_ms == pytest.approx(now_ms + 80.0)
    assert owner.dispatcher.wait_ms((SPACE, "w"), None, now_ms) == pytest.approx(80.0)


def test_a_profile_that_is_too_fast_misses_the_slo_until_runs_are_observed():
    """With times 15 % above the profile's, the margin is too small; the correction mends it."""
    slo_ms = 113.0
    rows = [(1, 1, 20, 100.0), (1, 1, 50, 60.0)]
    owner = Owner([profile("f0", rows), workflow([[]], slo_ms=slo_ms)])
    owner.pod("cheap", percent=20)
    owner.pod("fast", percent=50)
    serve(owner, 1.15, RUNS_MIN + 5)
    in_time = [1.15 * run.profiled_ms <= slo_ms for run in owner.runs]
    first = in_time.index(True)
    assert first == RUNS_MIN + 1  # the first run is no measure of the profile
    assert all(in_time[first:])


def test_slow_pods_leave_less_time_for_the_stages_before():
    """A later stage that runs slower than its profile makes the first one choose a faster share."""
    slow_or_fast = [(1, 1, 20, 60.0), (1, 1, 50, 30.0)]
    documents = [profile("f0", slow_or_fast), profile("f1", [(1, 1, 50, 40.0)])]
    owner = Owner([*documents, workflow([[], [0]], slo_ms=120.0)])
    owner.pod("cheap", percent=20)
    owner.pod("fast", percent=50)
    owner.pod("last", "f1")
    now_ms = 0.0
    for _ in range(RUNS_MIN + 2):
        owner.arrive(now_ms=now_ms)
        first = owner.runs[-1]
        now_ms += first.profiled_ms
        owner.dispatcher.run_ended(first, now_ms)
        now_ms += 2.0 * owner.runs[-1].profiled_ms
        owner.dispatcher.run_ended(owner.runs[-1], now_ms)
    chosen = [run.pod.name for run in owner.runs if run.stage == 0]
    assert (chosen[0], chosen[-1]) == ("cheap", "fast")


def test_partial_batches_and_first_runs_do_not_count():
    """A batch with a free row is shorter, and the first one of a pod longer, than the profile's."""
    owner = Owner([profile("f0", ROWS[1:]), workflow([[]])])
    owner.pod("p")
    serve(owner, 2.0, 3 * RUNS_MIN)
    assert owner.dispatcher.functions[KEY].pool.correction.ratio == 1.0
    owner = Owner([profile("f0", ROWS), workflow([[]])])
    now_ms = 0.0
    for i in range(3 * RUNS_MIN):
        pod = owner.pod(f"p{i}", ready_ms=now_ms)
        now_ms = serve(owner, 2.0, 1, begin_ms=now_ms)
        owner.dispatcher.remove_pod(pod, now_ms)
    assert owner.dispatcher.functions[KEY].pool.correction.ratio == 1.0


def test_a_new_profile_starts_without_a_correction():
    """Observations are relative to a profile; the same document again changes nothing."""
    owner = Owner([profile("f0", ROWS), workflow([[]])])
    owner.pod("p")
    serve(owner, 2.0, RUNS_MIN + 1)
    pool = owner.dispatcher.functions[KEY].pool
    owner.dispatcher.set_profile(profile("f0", ROWS))
    assert pool.correction.ratio == pytest.approx(2.0)
    owner.dispatcher.set_profile(profile("f0", [(1, 1, 50, 80.0)]))
    assert pool.correction.ratio == 1.0
    assert next(iter(pool.classes.values())).rows[0].latency_ms == 80.0


def test_slow_runs_get_pods_for_their_load():
    """Pods are counted with the time that runs take, not with the profile's."""
    owner = Owner([profile("f0", ROWS[:1], cold_start_ms=500.0), workflow([[]])])

    def expected_pods(now_ms):
        scaler = Scaler(owner.dispatcher, PodPrices(Prices()))
        scaler.expect((SPACE, "w"), 100.0)
        return len(owner.dispatcher.functions[KEY].pool.pods) + len(scaler.changes(now_ms).starts)

    before = expected_pods(0.0)
    owner.pod("p")
    now_ms = serve(owner, 3.0, RUNS_MIN + 1)
    assert expected_pods(now_ms) > 2 * before


def test_runs_that_vary_get_pods_that_leave_the_margin():
    """Times that vary leave less of the SLO for the mean: a faster share, at the same mean."""
    rows = [(1, 1, 20, 100.0), (1, 1, 50, 60.0)]
    owner = Owner([profile("f0", rows), workflow([[]], slo_ms=130.0)])
    scaler = Scaler(owner.dispatcher, PodPrices(Prices()))
    scaler.expect((SPACE, "w"), 5.0)
    assert {start.share.gpu_percent for start in scaler.changes(0.0).starts} == {20}
    owner.pod("p", percent=20)
    now_ms = 0.0
    for i in range(SPREAD_RUNS_MIN + 1):
        now_ms = serve(owner, 1.3 if i % 2 else 0.7, 1, begin_ms=now_ms)
    assert owner.dispatcher.functions[KEY].pool.correction.ratio == pytest.approx(1.0, abs=0.05)
    assert {start.share.gpu_percent for start in scaler.changes(now_ms).starts} == {50}


def test_noise_alone_changes_pods_little():
    """Corrections of steady run times stay within a step of one another."""
    noise = np.random.default_rng(1).lognormal(-0.005, 0.1, 5_000)
    ratios = [c.ratio for c in corrections(noise)]
    assert all(abs(b / a - 1.0) < 2 * STEP_RATIO for a, b in pairwise(ratios))


def test_largest_percentile_of_a_profile():
    """A function's percentile is relative to the latency of its point, and follows its profile."""
    pool = Pool(KEY, profile("f0", ROWS))
    assert pool.p95_ratio == 0.0
    pool.set_profile(Correction(spread_ratio=0.1).profile(profile("f0", ROWS)))
    assert pool.p95_ratio == pytest.approx(1.1724, abs=1e-4)
