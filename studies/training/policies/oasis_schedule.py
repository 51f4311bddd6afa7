"""Prices of GPUs and CPUs by time slot, and the cheapest schedule of a job at these prices.

A price rises exponentially with the part of the capacity that is reserved: from a low one, at which
any job pays off, to a high one, at which none does. A job has one price for all that it reserves in
a slot, so its cheapest schedule follows slot by slot, by dynamic programming over chunks.
"""

from collections.abc import Sequence
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from studies.training.job import ParameterServerJob

_ROUNDING = 1e-9
LOW_PRICE_RATIO = 0.25  # so that idle GPUs and CPUs cost at most half of any job's utility

Floats = NDArray[np.float64]


class PriceRange(NamedTuple):
    """Prices of a unit for one slot: of an idle resource, and of one that is reserved in full."""

    low: float
    high: float

    def at(self, used_ratio: Floats) -> Floats:
        """Return the price of a resource of which so much is reserved."""
        prices: Floats = self.low * (self.high / self.low) ** used_ratio
        return prices


class PriceBounds:
    """Range of a resource's prices, from the jobs that have arrived.

    Args:
        capacity: units of the resource in all slots together.
        low_ratio: price of all of it while it is idle over the least utility of a job.
    """

    def __init__(self, capacity: int, low_ratio: float = LOW_PRICE_RATIO) -> None:
        self._capacity = capacity
        self._low_ratio = low_ratio
        self._high = 0.0
        self._density_min = self._demand_min = inf

    def add(self, utility: float, units: int, demand: int) -> None:
        """Take a job into account.

        Args:
            utility: largest utility of the job, above 0.
            units: units that one of its workers or servers needs.
            demand: units that it needs in all slots together.
        """
        self._high = max(self._high, utility / units)
        self._density_min = min(self._density_min, utility / demand)
        self._demand_min = min(self._demand_min, demand)

    @property
    def prices(self) -> PriceRange:
        """Return the range."""
        part = min(self._demand_min / self._capacity, 1.0)
        low = self._low_ratio * self._density_min * part
        return PriceRange(min(low, self._high), self._high)


class SlotPlan(NamedTuple):
    """Reservation of a job in one slot.

    Attributes:
        workers: number of workers by node.
        servers: number of parameter servers.
    """

    workers: tuple[int, ...]
    servers: int


class PricedSlots:
    """Reservations by slot, and the prices of what is left.

    Args:
        slots: number of slots.
        slot_s: length of a slot.
        node_gpus: number of GPUs of each node, at least one.
        cpus: CPUs for parameter servers, which all nodes pool; at least one.
        low_ratio: see `PriceBounds`.
    """

    def __init__(
        self,
        slots: int,
        slot_s: float,
        node_gpus: Sequence[int],
        cpus: int,
        low_ratio: float = LOW_PRICE_RATIO,
    ) -> None:
        self.count = slots
        self._slot_s = slot_s
        self._gpus, self._cpus = np.array(node_gpus), cpus
        self._used_gpus = np.zeros((slots, len(node_gpus)), np.int64)
        self._used_cpus = np.zeros(slots, np.int64)
        self._gpu_bounds = PriceBounds(slots * sum(node_gpus), low_ratio)
        self._cpu_bounds = PriceBounds(slots * cpus, low_ratio)

    def add_job(self, job: ParameterServerJob) -> bool:
        """Take a job into account in the prices; false: it has no utility, however fast it is."""
        utility = job.largest_utility(self._slot_s)
        if utility <= 0:
            return False
        worker_slots = ceil(job.epochs * job.chunks * job.chunk_s / self._slot_s)
        self._gpu_bounds.add(utility, 1, worker_slots)
        self._cpu_bounds.add(utility, job.server_cpus, job.servers(worker_slots) * job.server_cpus)
        return True

    @property
    def prices(self) -> tuple[PriceRange, PriceRange]:
        """Prices of GPUs and of CPUs."""
        return self._gpu_bounds.prices, self._cpu_bounds.prices

    def chunk_costs(self, job: ParameterServerJob, slot: int) -> Floats:
        """Return the least cost of training 0, 1, 2 … chunks in a slot, as many as fit."""
        prices = np.repeat(self._node_prices(slot), self._gpus - self._used_gpus[slot])
        worker_costs = np.concatenate(([0.0], np.cumsum(np.sort(prices))))
        cpu_price = float(self._cpu_bounds.prices.at(self._used_cpus[slot] / self._cpus))
        free_cpus = self._cpus - self._used_cpus[slot]
        costs = []
        for chunks in range(int(job.chunks * self._slot_s / job.chunk_s + _ROUNDING) + 1):
            workers = self._workers(job, chunks)
            cpus = job.servers(workers) * job.server_cpus
            if workers >= len(worker_costs) or cpus > free_cpus:
                break
            costs.append(float(worker_costs[workers]) + cpus * cpu_price)
        return np.array(costs)

    def reserve(self, job: ParameterServerJob, slot: int, chunks: int) -> SlotPlan:
        """Reserve the cheapest GPUs of a slot for so many chunks, and the CPUs of the servers."""
        workers = self._workers(job, chunks)
        servers = job.servers(workers)
        by_node = [0] * len(self._gpus)
        for node in np.argsort(self._node_prices(slot), kind="stable").tolist():
            free = int(self._gpus[node] - self._used_gpus[slot, node])
            by_node[node] = min(workers - sum(by_node), free)
        self._used_gpus[slot] += by_node
        self._used_cpus[slot] += servers * job.server_cpus
        return SlotPlan(tuple(by_node), servers)

    def _node_prices(self, slot: int) -> Floats:
        return self._gpu_bounds.prices.at(self._used_gpus[slot] / self._gpus)

    def _workers(self, job: ParameterServerJob, chunks: int) -> int:
        """Return the workers that train so many chunks in a slot."""
        return ceil(chunks * job.chunk_s / self._slot_s - _ROUNDING)


class CheapestSchedules:
    """Least cost of training a number of chunks by the end of each slot.

    Args:
        costs: cost of 0, 1, 2 … chunks in each slot.
        chunks: number of chunks in all slots together.

    Attributes:
        costs: least cost of all chunks by the end of each slot; inf: not possible.
    """

    def __init__(self, costs: Sequence[Floats], chunks: int) -> None:
        cheapest = np.full(chunks + 1, inf)  # by number of chunks so far
        cheapest[0] = 0.0
        self._chunks = chunks
        self._choices: list[NDArray[np.int64]] = []
        self.costs = np.full(len(costs), inf)
        for slot, slot_costs in enumerate(costs):
            limit = len(slot_costs) - 1
            padded = np.concatenate((np.full(limit, inf), cheapest))
            # A row for each number of chunks so far; in it, those before this slot, fewest first.
            earlier = np.lib.stride_tricks.sliding_window_view(padded, limit + 1)
            sums = earlier + slot_costs[::-1]
            best = np.argmin(sums, axis=1)
            self._choices.append(limit - best)
            cheapest = np.take_along_axis(sums, best[:, None], axis=1)[:, 0]
            self.costs[slot] = cheapest[chunks]

    def chunks_by_slot(self, last: int) -> list[int]:
        """Return the chunks of each slot in the cheapest schedule that ends with a slot."""
        untrained = self._chunks
        chosen = []
        for slot in range(last, -1, -1):
            chosen.append(int(self._choices[slot][untrained]))
            untrained -= chosen[-1]
        return chosen[::-1]
