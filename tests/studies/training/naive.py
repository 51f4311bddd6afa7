"""Slow, obvious twins of the kernels of training clusters; they share no code with them."""

from itertools import product

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


def naive_repair(state, capacities, limits, apart):
    """Repair a matrix rule by rule; also return the jobs whose nodes a limit cuts at random."""
    repaired = state.astype(int)
    several = np.count_nonzero(repaired, axis=1) > 1
    if apart:
        for node in repaired.T:
            jobs = [job for job in np.flatnonzero(node) if several[job]]
            node[jobs[1:]] = 0
    cut = {job for job in range(len(repaired)) if repaired[job].sum() > limits[job]}
    for n, capacity in enumerate(capacities):
        for job in range(len(repaired)):
            repaired[job, n] = max(0, min(repaired[job, n], capacity - repaired[:job, n].sum()))
    return repaired, cut


def naive_objectives(state, base, capacities, speedups, factors):
    """Return the mean and the sum by node in use, both negative."""
    own = [
        speedups[job, int(np.count_nonzero(row) > 1), int(row.sum())]
        for job, row in enumerate(state)
    ]
    changed = [bool((row != was).any()) for row, was in zip(state, base, strict=True)]
    weighted = [
        speedup * (factors[job] if changed[job] else 1.0) + 1e-3 for job, speedup in enumerate(own)
    ]
    active = sum(
        int(capacity) for capacity, node in zip(capacities, state.T, strict=True) if node.any()
    )
    mean = len(own) / sum(1 / speedup for speedup in weighted)
    return -mean, -sum(own) / active if active else 0.0


def naive_fronts(values):
    """Peel off the states that no remaining one dominates, again and again."""
    fronts, unranked = {}, set(range(len(values)))
    while unranked:
        front = {
            i
            for i in unranked
            if not any(
                (values[j] <= values[i]).all() and (values[j] < values[i]).any() for j in unranked
            )
        }
        fronts.update(dict.fromkeys(front, len(set(fronts.values()))))
        unranked -= front
    return [fronts[i] for i in range(len(values))]


def naive_crowding(values):
    """Return mean normalised distances between neighbours in one front without equal states."""
    distances = np.zeros(len(values))
    for column in values.T:
        order = np.argsort(column)
        span = column.max() - column.min()
        distances[order[[0, -1]]] = np.inf
        for before, i, after in zip(order, order[1:], order[2:], strict=False):
            distances[i] += (column[after] - column[before]) / span / 2
    return distances


class NaiveOasis:
    """Prices by their definition, and the best pay-off of all schedules, one by one."""

    def __init__(self, slots, slot_s, node_gpus, cpus):
        self.slots, self.slot_s, self.node_gpus, self.cpus = slots, slot_s, node_gpus, cpus
        self.used_gpus = [[0] * len(node_gpus) for _ in range(slots)]
        self.used_cpus = [0] * slots
        self.arrived = []

    def best_payoff(self, job, first):
        """Return the largest utility less the price, or 0 if no schedule has more."""
        self.arrived.append(job)
        options = [list(self._options(job, slot)) for slot in range(first, self.slots)]
        best = 0.0
        for schedule in product(*options):
            if sum(option[0] for option in schedule) == job.epochs * job.chunks:
                last = max(i for i, option in enumerate(schedule) if option[0])
                utility = job.utility((first + last + 1) * self.slot_s - job.submit_s)
                best = max(best, utility - sum(option[1] for option in schedule))
        return best

    def payoff(self, job, plan):
        """Return the utility of a plan less its price, by slot the workers by node and servers."""
        price = sum(self._price(job, slot, p.workers, p.servers) for slot, p in plan.items())
        return job.utility((max(plan) + 1) * self.slot_s - job.submit_s) - price

    def reserve(self, job, plan):
        for slot, planned in plan.items():
            for node, workers in enumerate(planned.workers):
                self.used_gpus[slot][node] += workers
                assert self.used_gpus[slot][node] <= self.node_gpus[node]
            self.used_cpus[slot] += planned.servers * job.server_cpus
            assert self.used_cpus[slot] <= self.cpus

    def _options(self, job, slot):
        """Yield numbers of chunks with the price of each way to place their workers."""
        ranges = [
            range(size - used + 1)
            for size, used in zip(self.node_gpus, self.used_gpus[slot], strict=True)
        ]
        for by_node in product(*ranges):
            workers = sum(by_node)
            servers = job.servers(workers)
            free_cpus = self.cpus - self.used_cpus[slot]
            if workers <= job.chunks and servers * job.server_cpus <= free_cpus:
                price = self._price(job, slot, by_node, servers)
                for chunks in range(int(workers * self.slot_s / job.chunk_s + 1e-9) + 1):
                    yield chunks, price

    def _price(self, job, slot, by_node, servers):
        price = 0.0
        for size, used, workers in zip(self.node_gpus, self.used_gpus[slot], by_node, strict=True):
            price += workers * self._unit_price(
                used / size, self.slots * sum(self.node_gpus), lambda _: 1, self._worker_slots
            )
        unit = self._unit_price(
            self.used_cpus[slot] / self.cpus,
            self.slots * self.cpus,
            lambda job_before: job_before.server_cpus,
            lambda job_before: (
                job_before.servers(self._worker_slots(job_before)) * job_before.server_cpus
            ),
        )
        return price + servers * job.server_cpus * unit

    def _unit_price(self, used_ratio, capacity, units, demand):
        best = {
            job: job.utility(self.slot_s * np.ceil(job.epochs * job.chunk_s / self.slot_s))
            for job in self.arrived
        }
        high = max(best[job] / units(job) for job in self.arrived)
        low = min(best[job] / demand(job) for job in self.arrived) / 4
        low *= min(1.0, *(demand(job) / capacity for job in self.arrived))
        return low ** (1 - used_ratio) * high**used_ratio

    def _worker_slots(self, job):
        return int(np.ceil(job.epochs * job.chunks * job.chunk_s / self.slot_s))
