"""Orion: one configuration per stage, enlarged step by step until the tail latency meets the SLO.

Source: "ORION and the Three Rights: Sizing, Bundling, and Prewarming for Serverless DAGs", Mahgoub
et al., OSDI 2022. Our reconstruction from descriptions of it and of the ESG paper, which compares
with it.

The rule, for a workflow, before its first request. All stages start at the minimum configuration. A
step raises one dimension of one stage by one level: vCPUs, GPU share, or batch. Among all steps
that lower the 95th percentile of the end-to-end time, the search takes the one with the largest
reduction per additional dollar; a step without additional cost comes first. It ends when the
percentile meets the SLO. It is a best-first search: if no step lowers the percentile, it continues
from the unexpanded state with the lowest percentile. If its steps or the states are exhausted, the
state with the lowest percentile is the result.

`orion-code` follows the public code, as described to us: among all steps the search takes the one
with the lowest percentile, whatever it costs.

The percentile is that of 1,000 requests. Each has one factor per stage, drawn once for all states,
so that two states differ by their configurations alone.

Pre-warming: the start of a later stage's container is delayed after the arrival so that it is ready
in 95 of 100 requests when the stage may begin: the 5th percentile of that time, less its cold
start.

Differences from the paper:

- The paper ends the search after 100 ms. A run would then depend on the machine, so here the search
  ends after 200 steps, more than a direct walk from the minimum to the maximum takes on five stages
  with 4 x 8 x 8 configurations.
- The paper sizes memory, which determines vCPUs, on one kind of machine. Here a step is one in
  vCPUs, share or batch, on one GPU model, as the ESG paper gave them to Orion. A larger batch takes
  longer, so it lowers the percentile only in unusual profiles.
- The paper combines measured distributions by convolution; here times are log-normal around the
  profile and combined by sampling. Its bundling of parallel stages on one machine is left out.
- The percentile by which the paper times pre-warming is not percentile_ms to us.
"""

from collections.abc import Iterator
from functools import cache
from heapq import heappop, heappush
from math import inf, log
from typing import ClassVar

import numpy as np

from scheduler.model.plan import Candidate
from scheduler.search.frontiers.arrays import Floats
from workbench.simulation.policies.choices import minimum, size
from workbench.simulation.policies.end_to_end import Choice, EndToEnd, log_normal
from workbench.simulation.policies.fixed import FixedPolicy
from workbench.simulation.policy import PolicyContext, QueueKey

TAIL = 0.95
SAMPLES = 1_000
STEPS_MAX = 200


class Orion(FixedPolicy):
    """The policy described in the module's docstring."""

    name: ClassVar[str] = "orion"
    by_cost: ClassVar[bool] = True

    def __init__(self, context: PolicyContext) -> None:
        self._delays_ms: dict[QueueKey, float] = {}
        super().__init__(context)

    def _choose(self, whole: EndToEnd) -> Choice:
        shape = (SAMPLES, len(whole.keys))
        noise = log_normal(self.context.noise_ratio, shape, self.context.random)
        choice = sized(whole, noise, by_cost=self.by_cost)
        ends_ms = whole.ends_ms(choice, noise)
        for v, key in enumerate(whole.keys):
            begins_ms = float(np.quantile(whole.starts_ms(v, ends_ms), 1.0 - TAIL))
            if begins_ms > 0:
                self._delays_ms[key] = max(
                    0.0, begins_ms - self.context.profile(key).spec.cold_start_ms
                )
        return choice

    def prewarm_delay_ms(self, key: QueueKey) -> float | None:
        """Return the delay from a request's arrival to the start of a later stage's container."""
        return self._delays_ms.get(key)


class OrionCode(Orion):
    """The same without costs."""

    name: ClassVar[str] = "orion-code"
    by_cost: ClassVar[bool] = False


def sized(
    whole: EndToEnd, noise: Floats, steps_max: int = STEPS_MAX, *, by_cost: bool = True
) -> Choice:
    """Return the first state whose percentile meets the SLO, or the lowest percentile reached."""
    search = _BestFirstSearch(whole, noise, by_cost=by_cost)
    at: Choice = tuple(listed.index(minimum(listed)) for listed in whole.options)
    while search.tail_ms(at) > whole.slo_ms:
        successor = search.expand(at) if search.steps < steps_max else None
        if successor is None:
            return search.lowest()
        at = successor
    return at


class _BestFirstSearch:
    """Evaluated and expanded states of a search."""

    def __init__(self, whole: EndToEnd, noise: Floats, *, by_cost: bool) -> None:
        self._whole = whole
        self._by_cost = by_cost
        self._noise = noise
        self._steps = cache(lambda v, i: tuple(steps(whole.options[v], i)))
        self._evaluated: dict[Choice, float] = {}
        self._open: list[tuple[float, Choice]] = []
        self._expanded: set[Choice] = set()

    @property
    def steps(self) -> int:
        """Number of expanded states."""
        return len(self._expanded)

    def tail_ms(self, state: Choice) -> float:
        """Return the percentile of a state's end-to-end time."""
        percentile_ms = self._evaluated.get(state)
        if percentile_ms is None:
            percentile_ms = float(np.quantile(self._whole.times_ms(state, self._noise), TAIL))
            self._evaluated[state] = percentile_ms
            heappush(self._open, (percentile_ms, state))
        return percentile_ms

    def expand(self, at: Choice) -> Choice | None:
        """Return the best single step, or the lowest unexpanded state; None: there is none."""
        self._expanded.add(at)
        best, best_worth = None, (0.0, 0.0)
        for v, i in enumerate(at):
            for j in self._steps(v, i):
                state = (*at[:v], j, *at[v + 1 :])
                if state in self._expanded:
                    continue
                worth = self._worth(at, state)
                if worth > best_worth:
                    best, best_worth = state, worth
        while best is None and self._open:
            _, lowest = heappop(self._open)
            best = None if lowest in self._expanded else lowest
        return best

    def lowest(self) -> Choice:
        """Return the state with the lowest percentile; among equals the cheapest."""
        return min(
            self._evaluated,
            key=lambda state: (self._evaluated[state], self._whole.cost_dollars(state)),
        )

    def _worth(self, at: Choice, state: Choice) -> tuple[float, float]:
        """Reduction of the percentile per additional dollar per request; and in total."""
        gain_ms = self.tail_ms(at) - self.tail_ms(state)
        if gain_ms <= 0:
            return 0.0, 0.0
        if not self._by_cost:
            return gain_ms, 0.0
        added_dollars = self._whole.cost_dollars(state) - self._whole.cost_dollars(at)
        return (gain_ms / added_dollars if added_dollars > 0 else inf), gain_ms


def steps(listed: tuple[Candidate, ...], at: int) -> Iterator[int]:
    """Yield the configurations that are one level higher in one dimension.

    If the profile has no such configuration, yield the nearest one in the other two dimensions.
    """
    here = size(listed[at])
    sizes = [size(candidate) for candidate in listed]
    for axis, level in enumerate(here):
        next_level = min((size[axis] for size in sizes if size[axis] > level), default=None)
        near = [i for i, size in enumerate(sizes) if size[axis] == next_level]
        if near:
            yield min(near, key=lambda i: _log_ratio(sizes[i], here, axis))


def _log_ratio(a: tuple[int, int, int], b: tuple[int, int, int], axis: int) -> float:
    """Distance on a logarithmic scale in all dimensions but one."""
    return sum(abs(log(a[i] / b[i])) for i in range(3) if i != axis)
