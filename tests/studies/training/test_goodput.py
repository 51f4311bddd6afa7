"""Goodput model: kernels against their twins, and fits of measured steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from studies.training.goodput import batch_limits, fit_model, goodputs
from studies.training.goodput_kernels import (
    LOWEST,
    best_samples_per_s,
    fit_error_ratio,
    step_time_s,
)
from tests.studies.training.naive import naive_best_batch, naive_fit_error, naive_step_s

times = st.floats(1e-4, 1.0)
models = st.tuples(times, times, times, times, times, times, st.floats(1.0, 10.0)).map(np.array)


@given(model=models, gpus=st.integers(1, 64), spread=st.booleans(), local=st.integers(1, 4096))
def test_step_time_is_that_of_the_twin(model, gpus, spread, local):
    """Powers are computed relative to the larger time, with the same result."""
    expected_s = naive_step_s(model, gpus, spread, local)
    assert step_time_s(model, gpus, spread, local) == pytest.approx(expected_s)


@given(
    model=models,
    initial=st.integers(8, 128),
    growth=st.integers(1, 64),
    local_min=st.integers(1, 8),
    local_max=st.integers(16, 256),
    noise=st.floats(0.01, 1e4),
    gpus=st.integers(1, 16),
    spread=st.booleans(),
)
def test_best_batch_is_that_of_the_twin(
    model, initial, growth, local_min, local_max, noise, gpus, spread
):
    """The chosen batch has the largest goodput of all that are tried."""
    limits = batch_limits(initial, initial * growth, local_min, local_max)
    division = np.zeros(2, np.int64)
    goodput = best_samples_per_s(model, limits, np.array([1.0, noise]), gpus, spread, division)
    expected, _, _ = naive_best_batch(model, limits, 1.0, noise, gpus, spread)
    assert goodput == pytest.approx(expected, rel=1e-6)
    table = goodputs(model, limits, (1.0, noise), gpus)
    assert table[int(spread and gpus > 1), gpus] == pytest.approx(goodput)


def rows_of(profile):
    return np.array(
        [(n > 1, g, m, step - sync, step) for (n, g, m), (step, sync) in profile.items()], float
    )


def measured(model, seed, count, *, noise=0.05):
    """Draw placements and batches, and let a model with noise say how long they take."""
    random = np.random.default_rng(seed)
    profile = {}
    for _ in range(count):
        gpus = int(random.integers(1, 17))
        nodes = int(random.integers(-(-gpus // 4), gpus + 1))
        local = int(random.integers(8, 128))
        compute_s = (model[0] + model[1] * local) * random.uniform(1 - noise, 1 + noise)
        step_s = max(naive_step_s(model, gpus, nodes > 1, local), compute_s)
        profile[nodes, gpus, local] = (step_s, step_s - compute_s)
    return profile


@given(model=models, seed=st.integers(0, 1000), count=st.integers(2, 8))
def test_error_and_gradient_are_those_of_the_twin(model, seed, count):
    """The written gradient points where differences of the error do."""
    rows = rows_of(measured(np.array([0.05, 0.001, 0.1, 0.01, 0.02, 0.001, 2.0]), seed, count))
    gradient = np.empty(7)
    error = fit_error_ratio(model, rows, gradient)
    assert error == pytest.approx(naive_fit_error(model, rows))
    for k in range(7):
        shift = np.eye(7)[k] * 1e-5 * model[k]
        slope = (naive_fit_error(model + shift, rows) - naive_fit_error(model - shift, rows)) / (
            2e-5 * model[k]
        )
        assert gradient[k] * model[k] == pytest.approx(slope * model[k], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]
)
def test_a_fit_explains_steps_as_well_as_scipy(seed):
    """From the same start, another optimiser is no better by a hundredth."""
    random = np.random.default_rng(seed)
    true = np.array([*(random.uniform(0.01, 0.2, 6) * [1, 0.05, 1, 0.1, 0.5, 0.05]), 2.0])
    profile = measured(true, seed, 12)
    for gpus in (2, 4):  # on one node, so that every parameter is observed
        step_s = naive_step_s(true, gpus, False, 32)
        profile[1, gpus, 32] = (step_s, step_s - true[0] - true[1] * 32)
    rows = rows_of(profile)
    bounds = [(LOWEST, None)] * 6 + [(1.0, 10.0)]
    reference = minimize(
        naive_fit_error, [0.1, 0.01] * 3 + [1.001], (rows,), "L-BFGS-B", bounds=bounds
    )
    assert naive_fit_error(fit_model(profile), rows) <= reference.fun * 1.01


def test_what_was_not_seen_is_optimistic():
    """One node alone was seen: several are assumed slower by a tenth; growth is assumed small."""
    model = fit_model({(1, 1, 32): (0.2, 0.0), (1, 2, 32): (0.3, 0.1)})
    assert model[2] == pytest.approx(1.1 * model[4])
    assert model[5] == pytest.approx(LOWEST)
