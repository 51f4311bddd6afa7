"""Kernels of the goodput model: see `goodput`.

``tests/studies/training/naive.py`` holds their slow twins.
"""

from math import ceil, exp, log, sqrt

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Flags = NDArray[np.bool_]

LOWEST = 1e-8  # of times, s
GAMMA = 6  # its index
GAMMA_MAX = 10.0
SLOPE_MIN = 1e-12  # of a direction worth a step
LENGTH_MIN = 1e-10  # of a step
GAIN_MIN = 1e-9  # relative, of the error
_ROUNDING = 1e-8  # subtracted before rounding up
_ZERO_ERROR = 1e-12  # below, an error has no direction


@njit("float64(float64[::1], int64, boolean, int64)", nogil=True, cache=True)
def step_time_s(
    model: Floats,
    gpus: int,
    spread: bool,  # noqa: FBT001 - kernels take no keywords
    local_batch: int,
) -> float:
    """Return the time of a step with gradient exchange, in seconds.

    Args:
        model: seven parameters of the model.
        gpus: number of GPUs.
        spread: true if the GPUs are on several nodes.
        local_batch: number of samples per GPU.
    """
    compute_s = model[0] + model[1] * local_batch
    if gpus == 1:
        return float(compute_s)
    first = 2 if spread else 4
    network_s = model[first] + model[first + 1] * max(gpus - 2, 0)
    gamma = model[6]
    high, low = max(compute_s, network_s), min(compute_s, network_s)
    return float(high * exp(log(1.0 + (low / high) ** gamma) / gamma))


@njit(
    "float64(float64[::1], int64[::1], float64[::1], int64, boolean, int64[::1])",
    nogil=True,
    cache=True,
)
def best_samples_per_s(
    model: Floats,
    limits: Ints,
    gradients: Floats,
    gpus: int,
    spread: bool,  # noqa: FBT001 - kernels take no keywords
    division: Ints,
) -> float:
    """Return the largest goodput over batch sizes; write local batch and steps to ``division``.

    Args:
        model: seven parameters of the model.
        limits: initial and largest batch, smallest and largest local batch, batches to try.
        gradients: (2,): squared norm of the gradient, and its variance.
        gpus: number of GPUs.
        spread: true if the GPUs are on several nodes.
        division: (2,): local batch and accumulation steps; 0 if no batch is valid.
    """
    initial, largest, local_min, local_max, tries = limits
    grad_sqr, grad_var = gradients
    first = log(max(initial, local_min * gpus))
    step = (log(largest) - first) / (tries - 1)
    best = 0.0
    before = (-1, -1)
    division[0] = division[1] = 0
    for i in range(tries):
        share = exp(first + step * i) / gpus
        steps = ceil(share / local_max - _ROUNDING) - 1
        if gpus == 1 and share > initial + _ROUNDING:
            steps = max(steps, 1)
        local = ceil(share / (steps + 1) - _ROUNDING)
        if (local, steps) == before or not local_min <= local <= local_max:
            continue
        before = (local, steps)
        batch = gpus * local * (steps + 1)
        scale = batch / initial
        seconds = step_time_s(model, gpus, spread, local) + steps * (model[0] + model[1] * local)
        gain = (grad_var + grad_sqr) / (grad_var / scale + grad_sqr)
        goodput = initial * gain / seconds
        if goodput > best:
            best = goodput
            division[0] = local
            division[1] = steps
    return best


@njit("void(float64[::1], int64[::1], float64[::1], float64[:, ::1])", nogil=True, cache=True)
def goodput_table(model: Floats, limits: Ints, gradients: Floats, table: Floats) -> None:
    """Write the best goodput on one node (row 0) and on several (row 1), by number of GPUs."""
    division = np.zeros(2, np.int64)
    table[0, 0] = table[1, 0] = 0.0
    for gpus in range(1, table.shape[1]):
        table[0, gpus] = best_samples_per_s(model, limits, gradients, gpus, False, division)
        table[1, gpus] = table[0, gpus]
        if gpus > 1:
            table[1, gpus] = best_samples_per_s(model, limits, gradients, gpus, True, division)


@njit("float64(float64[::1], float64[:, ::1], float64[::1])", nogil=True, cache=True)
def fit_error_ratio(model: Floats, rows: Floats, gradient: Floats) -> float:
    """Return the error of a model over measured steps, and write its gradient.

    The error is the root mean square of the logarithm of compute times, that of step times, and
    penalties of gamma and of network times that grow with the number of GPUs.

    Args:
        model: seven parameters of the model.
        rows: (n, 5): spread (0 or 1), GPUs, local batch, compute time, step time.
        gradient: (7,), gradient of the result.
    """
    count = rows.shape[0]
    gamma = model[6]
    compute_gradient = np.zeros(7)
    step_gradient = np.zeros(7)
    compute_error = step_error = 0.0
    for i in range(count):
        local_batch = rows[i, 2]
        compute_s = model[0] + model[1] * local_batch
        difference = log(compute_s) - log(rows[i, 3])
        compute_error += difference * difference
        compute_gradient[0] += difference / compute_s
        compute_gradient[1] += difference * local_batch / compute_s
        share = 1.0  # of compute time in the step
        log_step = log(compute_s)
        if rows[i, 1] > 1:
            first = 2 if rows[i, 0] > 0 else 4
            grown = max(rows[i, 1] - 2.0, 0.0)
            network_s = model[first] + model[first + 1] * grown
            # Relative to the larger one, so that powers do not vanish.
            high = max(compute_s, network_s)
            compute_power = (compute_s / high) ** gamma
            network_power = (network_s / high) ** gamma
            total = compute_power + network_power
            share = compute_power / total
            log_step = log(high) + log(total) / gamma
            off = log_step - log(rows[i, 4])
            step_gradient[first] += off * (1.0 - share) / network_s
            step_gradient[first + 1] += off * (1.0 - share) * grown / network_s
            mean_log = share * log(compute_s / high) + (1.0 - share) * log(network_s / high)
            step_gradient[6] += off * (mean_log - log(total) / gamma) / gamma
        difference = log_step - log(rows[i, 4])
        step_error += difference * difference
        step_gradient[0] += difference * share / compute_s
        step_gradient[1] += difference * share * local_batch / compute_s
    compute_rms = sqrt(compute_error / count)
    step_rms = sqrt(step_error / count)
    for k in range(7):
        gradient[k] = 0.0
        if compute_rms > _ZERO_ERROR:
            gradient[k] += compute_gradient[k] / (count * compute_rms)
        if step_rms > _ZERO_ERROR:
            gradient[k] += step_gradient[k] / (count * step_rms)
    error = compute_rms + step_rms + 1e-3 * (gamma - 1.0) ** 2
    gradient[6] += 2e-3 * (gamma - 1.0)
    for first in (2, 4):
        ratio = model[first + 1] / model[first]
        error += 1e-2 * ratio * ratio
        gradient[first] -= 2e-2 * ratio * ratio / model[first]
        gradient[first + 1] += 2e-2 * ratio / model[first]
    return float(error)


@njit("float64(float64[::1], float64[:, ::1], float64[::1], float64[::1])", nogil=True, cache=True)
def _placed_error_ratio(place: Floats, rows: Floats, model: Floats, gradient: Floats) -> float:
    """Write the model of logarithmic parameters; return its error and write its gradient."""
    for k in range(6):
        model[k] = exp(place[k])
    model[6] = place[6]
    error = fit_error_ratio(model, rows, gradient)
    for k in range(6):
        gradient[k] *= model[k]
    return error


@njit(
    "boolean(int64, float64[::1], float64[::1], boolean[::1], float64[::1], float64[::1])",
    nogil=True,
    cache=True,
)
def _is_fixed(
    k: int, place: Floats, gradient: Floats, fixed: Flags, lower: Floats, upper: Floats
) -> bool:
    """Return true if a parameter is fixed, or would leave its bounds."""
    return bool(
        fixed[k]
        or (place[k] <= lower[k] and gradient[k] > 0.0)
        or (place[k] >= upper[k] and gradient[k] < 0.0)
    )


@njit("int64(float64[::1], boolean[::1], float64[:, ::1], int64)", nogil=True, cache=True)
def fit(  # noqa: C901, PLR0912, PLR0915 - one loop over arrays
    model: Floats, fixed: Flags, rows: Floats, steps_max: int
) -> int:
    """Minimise `fit_error_ratio` by BFGS from ``model``, in place; return the steps taken.

    Times are searched by their logarithm, because they differ by orders of magnitude, and gamma
    between 1 and 10 directly.

    Args:
        model: seven parameters of the model, all above their lower bound.
        fixed: (7,): true for parameters that keep their value.
        rows: rows as in `fit_error_ratio`.
        steps_max: maximum number of steps.
    """
    lower = np.full(7, log(LOWEST))
    lower[6] = 1.0
    upper = np.full(7, np.inf)
    upper[6] = GAMMA_MAX
    place = np.empty(7)
    for k in range(7):
        place[k] = model[k] if k == GAMMA else log(model[k])
    gradient = np.empty(7)
    error = _placed_error_ratio(place, rows, model, gradient)
    inverse = np.eye(7)
    direction = np.empty(7)
    trial = np.empty(7)
    trial_gradient = np.empty(7)
    fresh = True  # the inverse is the identity
    for step in range(steps_max):
        slope = 0.0
        for k in range(7):
            direction[k] = 0.0
            if not _is_fixed(k, place, gradient, fixed, lower, upper):
                for i in range(7):
                    if not _is_fixed(i, place, gradient, fixed, lower, upper):
                        direction[k] -= inverse[k, i] * gradient[i]
            slope += direction[k] * gradient[k]
        if slope > -SLOPE_MIN:
            if fresh:
                return step
            inverse[:] = np.eye(7)
            fresh = True
            continue
        length = 1.0
        trial_error = np.inf
        while length > LENGTH_MIN:
            for k in range(7):
                trial[k] = min(max(place[k] + length * direction[k], lower[k]), upper[k])
            trial_error = _placed_error_ratio(trial, rows, model, trial_gradient)
            if trial_error <= error + 1e-4 * length * slope:
                break
            length *= 0.5
        if not trial_error < error - GAIN_MIN * abs(error):
            if fresh:
                break
            inverse[:] = np.eye(7)
            fresh = True
            continue
        moved = trial - place
        change = trial_gradient - gradient
        curvature = np.dot(moved, change)
        if curvature > SLOPE_MIN:
            if fresh:
                inverse *= curvature / np.dot(change, change)
                fresh = False
            product = np.dot(inverse, change)
            weight = (1.0 + np.dot(change, product) / curvature) / curvature
            for k in range(7):
                for i in range(7):
                    inverse[k, i] += (
                        weight * moved[k] * moved[i]
                        - (product[k] * moved[i] + moved[k] * product[i]) / curvature
                    )
        place[:] = trial
        gradient[:] = trial_gradient
        error = trial_error
    _placed_error_ratio(place, rows, model, gradient)
    return steps_max
