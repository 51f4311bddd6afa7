"""Slow, obvious twins of the kernels of training clusters; they share no code with them."""

import numpy as np


def naive_step_s(model, gpus, spread, local_batch):
    """Combine compute and network time by the power gamma."""
    compute_s = model[0] + model[1] * local_batch
    if gpus == 1:
        return compute_s
    first, slope = (model[2], model[3]) if spread else (model[4], model[5])
    network_s = first + slope * (gpus - 2)
    return (compute_s ** model[6] + network_s ** model[6]) ** (1 / model[6])


def naive_best_batch(model, limits, sqr, var, gpus, spread):
    """Try each batch of the geometric series; return goodput, local batch and steps."""
    initial, largest, local_min, local_max, tries = (int(limit) for limit in limits)
    best = (0.0, 0, 0)
    for batch in np.geomspace(max(initial, local_min * gpus), largest, tries):
        share = batch / gpus
        steps = int(np.ceil(share / local_max - 1e-8)) - 1
        if gpus == 1 and share > initial + 1e-8:
            steps = max(steps, 1)
        local = int(np.ceil(share / (steps + 1) - 1e-8))
        if not local_min <= local <= local_max:
            continue
        total = gpus * local * (steps + 1)
        seconds = naive_step_s(model, gpus, spread, local) + steps * (model[0] + model[1] * local)
        efficiency = (var + sqr) / (var * initial / total + sqr) * initial / total
        goodput = total / seconds * efficiency
        if goodput > best[0]:
            best = (goodput, local, steps)
    return best


def naive_fit_error(model, rows):
    """Add root mean squares of logarithmic errors and penalties."""
    compute = np.array([model[0] + model[1] * row[2] for row in rows])
    steps = np.array([naive_step_s(model, int(row[1]), row[0] > 0, row[2]) for row in rows])
    errors = [
        np.sqrt(np.mean((np.log(guess) - np.log(rows[:, column])) ** 2))
        for guess, column in ((compute, 3), (steps, 4))
    ]
    penalty = 1e-3 * (model[6] - 1) ** 2
    slopes = 1e-2 * ((model[3] / model[2]) ** 2 + (model[5] / model[4]) ** 2)
    return sum(errors) + penalty + slopes


def naive_repair(state, base, capacities, limits, speedups, factors, apart):
    """Repair a matrix job by job; return it and its cost."""
    repaired = np.zeros_like(state)
    crowded = set()  # nodes with a job on several nodes
    cost = 0.0
    for j, wanted in enumerate(state):
        row = np.zeros(len(capacities), int)
        for n, gpus in enumerate(wanted):
            free = capacities[n] - repaired[:, n].astype(int).sum()
            row[n] = max(min(int(gpus), free, limits[j] - row.sum()), 0)
        if apart and np.count_nonzero(row) > 1:
            for n in range(len(row)):
                if n in crowded:
                    row[n] = 0
        if np.count_nonzero(row) > 1:
            crowded |= set(np.flatnonzero(row).tolist())
        repaired[j] = row
        speedup = speedups[j, int(np.count_nonzero(row) > 1), row.sum()]
        if (row != base[j]).any():
            speedup *= factors[j]
        cost += 1 / (speedup + 1e-3)
    return repaired, cost
