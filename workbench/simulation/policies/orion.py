"""Orion: one configuration a stage, sized up step by step until the tail keeps the SLO.

Source: "ORION and the Three Rights: Sizing, Bundling, and Prewarming for Serverless DAGs", Mahgoub
et al., OSDI 2022. Derived anew from descriptions of it, and of the ESG paper, which compares with
it.

The rule, for a workflow, before its first request. All stages start at the minimum configuration. A
step gives one stage one level more of one thing: vCPUs, GPU share, or batch. Of all single steps
that lower the 95th percentile of the end-to-end time, the one is taken that lowers it most for what
it costs more; one that costs nothing comes before all others. The walk ends where the percentile
keeps the SLO. It is a best-first search: where no step lowers the percentile, it goes on from the
state with the lowest that it has seen and not yet left. If its steps run out, or the states, the
lowest seen is taken.

The percentile is that of 1,000 requests. Each has one factor for each stage, drawn once for all
states, so that two states differ by their configurations alone.

Pre-warming: a container for a later stage is started so long after the arrival that in 95 of 100
requests it is up when the stage may begin: at the 5th percentile of that moment, less its cold
start.

Where this departs:

- The paper ends the search after 100 ms. That would make a run depend on the machine, so here the
  search ends after 200 steps, which is more than the walk from the bottom to the top takes on
  five stages with 4 x 8 x 8 configurations, if it never turns back.
- The paper sizes memory, which brings vCPUs with it, on one kind of machine. Here a step is one in
  vCPUs, share or batch, on one GPU model, as the ESG paper gave them to Orion. A larger batch takes
  longer, so that it is a step that lowers the percentile only in unusual profiles.
- The paper joins measured distributions by convolution; here times are log-normal about the
  profile, and joined by sampling. Its bundling of parallel stages in one machine is left out.
- By which percentile the paper sets the moment to pre-warm is not known to us.
"""

from collections.abc import Iterator
from functools import cache
from heapq import heappop, heappush
from math import inf, log
from typing import ClassVar

import numpy as np

from scheduler.model.plan import Candidate
from scheduler.search.arrays import Floats
from workbench.simulation.policies.choices import minimum, size
from workbench.simulation.policies.end_to_end import Choice, EndToEnd, log_normal
from workbench.simulation.policies.fixed import FixedPolicy
from workbench.simulation.policy import PolicyContext, QueueKey

TAIL = 0.95
SAMPLES = 1_000
STEPS_MAX = 200


class Orion(FixedPolicy):
    """The policy as the module's docstring has it."""

    name: ClassVar[str] = "orion"

    def __init__(self, world: PolicyContext) -> None:
        self._delays_ms: dict[QueueKey, float] = {}
        super().__init__(world)

    def _chosen(self, whole: EndToEnd) -> Choice:
        shape = (SAMPLES, len(whole.keys))
        noise = log_normal(self.world.noise_ratio, shape, self.world.random)
        choice = sized(whole, noise)
        ends_ms = whole.ends_ms(choice, noise)
        for v, key in enumerate(whole.keys):
            begins_ms = float(np.quantile(whole.starts_ms(v, ends_ms), 1.0 - TAIL))
            if begins_ms > 0:
                self._delays_ms[key] = max(
                    0.0, begins_ms - self.world.profile(key).spec.cold_start_ms
                )
        return choice

    def prewarm_delay_ms(self, key: QueueKey) -> float | None:
        """After a request's arrival: when a later stage's container is started."""
        return self._delays_ms.get(key)


def sized(whole: EndToEnd, noise: Floats, steps_max: int = STEPS_MAX) -> Choice:
    """The first state on the walk whose percentile keeps the SLO, or the lowest percentile seen."""
    walk = _Walk(whole, noise)
    at: Choice = tuple(listed.index(minimum(listed)) for listed in whole.options)
    while walk.tail_ms(at) > whole.slo_ms:
        further = walk.further(at) if walk.steps < steps_max else None
        if further is None:
            return walk.lowest()
        at = further
    return at


class _Walk:
    """The states that a search has seen, and those that it has left."""

    def __init__(self, whole: EndToEnd, noise: Floats) -> None:
        self._whole = whole
        self._noise = noise
        self._steps = cache(lambda v, i: tuple(steps(whole.options[v], i)))
        self._seen: dict[Choice, float] = {}
        self._open: list[tuple[float, Choice]] = []
        self._left: set[Choice] = set()

    @property
    def steps(self) -> int:
        """How many were taken."""
        return len(self._left)

    def tail_ms(self, state: Choice) -> float:
        """The percentile of a state's end-to-end time."""
        known = self._seen.get(state)
        if known is None:
            known = float(np.quantile(self._whole.times_ms(state, self._noise), TAIL))
            self._seen[state] = known
            heappush(self._open, (known, state))
        return known

    def further(self, at: Choice) -> Choice | None:
        """The best single step, or the lowest state that was not left; None: all were."""
        self._left.add(at)
        best, best_worth = None, (0.0, 0.0)
        for v, i in enumerate(at):
            for j in self._steps(v, i):
                state = (*at[:v], j, *at[v + 1 :])
                if state in self._left:
                    continue
                worth = self._worth(at, state)
                if worth > best_worth:
                    best, best_worth = state, worth
        while best is None and self._open:
            _, lowest = heappop(self._open)
            best = None if lowest in self._left else lowest
        return best

    def lowest(self) -> Choice:
        """The state with the lowest percentile; of equals the cheapest."""
        return min(self._seen, key=lambda state: (self._seen[state], self._whole.cost(state)))

    def _worth(self, at: Choice, state: Choice) -> tuple[float, float]:
        """By how much a step lowers the percentile, for each dollar more a request; and at all."""
        gain_ms = self.tail_ms(at) - self.tail_ms(state)
        if gain_ms <= 0:
            return 0.0, 0.0
        more = self._whole.cost(state) - self._whole.cost(at)
        return (gain_ms / more if more > 0 else inf), gain_ms


def steps(listed: tuple[Candidate, ...], at: int) -> Iterator[int]:
    """The configurations with one level more of one thing than that one.

    Where the profile has a hole there, the one that is nearest in the other two things.
    """
    here = size(listed[at])
    sizes = [size(candidate) for candidate in listed]
    for axis, level in enumerate(here):
        further = min((one[axis] for one in sizes if one[axis] > level), default=None)
        near = [i for i, one in enumerate(sizes) if one[axis] == further]
        if near:
            yield min(near, key=lambda i: _distance(sizes[i], here, axis))


def _distance(one: tuple[int, int, int], other: tuple[int, int, int], axis: int) -> float:
    """How far apart in all but one thing."""
    return sum(abs(log(one[i] / other[i])) for i in range(3) if i != axis)
