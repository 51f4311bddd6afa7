"""Interface of a policy: it chooses the configurations under which a queue's jobs may run.

The engine owns the clock, the queues, the containers and the ledger. There are two kinds of
policies. A planning policy chooses whenever the engine examines a queue: the engine tries its
candidates in order and runs the first that fits on a node. An autoscaling policy requests a set of
containers for each pool, by default one for each function. They hold their share of a GPU even
while they are idle, and the policy changes the set periodically. Queues that share a pool share its
batches.

A user's own policy is a subclass of `Policy` in the entry point group ``esg_scheduler.policies``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import FunctionProfile
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.plan import Candidate, Configuration
from scheduler.model.progress import NOTHING_BEGUN, InstanceProgress
from scheduler.search.planner import Planner
from scheduler.search.rules import Rules

QueueKey = tuple[str, str, str]  # namespace, workflow, stage
PoolKey = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """Facts that a policy has from the start.

    Attributes:
        catalogue: workflows and profiles.
        rules: prices and other planning rules.
        fleet: size of the simulated nodes with each GPU model.
        noise_ratio: standard deviation of the logarithm of run time over profile.
        profiled_noise: true if it is each configuration's own, by its 95th percentile.
        rate_rps: expected requests per second of each workflow, for policies that plan before the
            first request.
        random: random number generator of this policy.
        candidates: number of configurations to try in order, the paper's K.
        margin_ratio: ratio by which a stage may exceed its profiled time and stay in time; None:
            the margin that the objective needs.
        headroom_ratio: additional capacity, as a ratio of the rate.
        replan: true to plan with the remaining slack; otherwise policies plan with the part of
            the SLO that the split leaves from the stage on.
        contexts, contexts_percent: number and total share of the contexts of a GPU.
        bandwidth_mib_s: network bandwidth of a node.
    """

    catalogue: Catalogue
    rules: Rules
    fleet: FleetCapacity
    noise_ratio: float
    rate_rps: Mapping[tuple[str, str], float]
    random: np.random.Generator
    profiled_noise: bool = False
    candidates: int = 5
    margin_ratio: float | None = None
    headroom_ratio: float = 0.0
    replan: bool = True
    contexts: int = 2
    contexts_percent: float = 100.0
    bandwidth_mib_s: float = float("inf")

    def profile(self, key: QueueKey) -> FunctionProfile:
        """Return the profile of the function that the queue's stage runs."""
        namespace, workflow, name = key
        stage = self.catalogue.workflow(namespace, workflow).stage(name)
        if stage is None:
            raise UnknownDocumentError(f"workflow {namespace}/{workflow} has no stage {name!r}")
        return self.catalogue.profile(stage.function)

    def whole_margin_ratio(self, workflow: tuple[str, str]) -> float:
        """Return the margin of a whole workflow, for policies that split its SLO once."""
        if self.margin_ratio is not None:
            return self.margin_ratio
        return Planner(self.catalogue, self.rules).workflow(*workflow).whole_margin().ratio


@dataclass(slots=True)
class SchedulingRequest:
    """A queue with waiting jobs, at one moment. The engine reuses the object: do not store it.

    Attributes:
        key: namespace, workflow and stage of the queue.
        now_ms: time of the virtual clock.
        queued: number of waiting jobs, of all queues of a pool.
        slack_ms: time until the deadline of the oldest job's request; negative after it.
        waited_ms: waiting time of the oldest job in this queue, or in all queues of a pool.
        missed: consecutive attempts at which no node could hold any candidate of this queue.
        starts_ms: start time on each kind of node, warm nodes first.
        noise_factor: factor on the next run time, by the common noise; only the oracle may read it.
        progress: progress of the oldest job's request; reported only for stages that others run
            in parallel with.
    """

    key: QueueKey
    now_ms: float
    queued: int
    slack_ms: float
    waited_ms: float
    missed: int
    starts_ms: tuple[float, ...]
    noise_factor: float
    progress: InstanceProgress = NOTHING_BEGUN


@dataclass(frozen=True, slots=True)
class Demand:
    """Load of a pool since the last rescaling, for autoscaling policies."""

    rate_rps: float  # arrivals per second
    queued: int
    containers: Mapping[Configuration, int]  # existing ones, including those that start
    queues: tuple[QueueKey, ...]  # that share the pool


class Policy(ABC):
    """A policy in one run.

    Attributes:
        name: value of ``esg simulate --policy``.
        autoscales: true if idle containers hold their share and the engine calls
            `desired_containers`.
        rescale_ms: period of rescaling.
        prewarms: true if the engine may start containers before the predicted next arrival.
        dispatches: true if the live dispatcher replaces the engine's own and the policy.
    """

    name: ClassVar[str]
    autoscales: ClassVar[bool] = False
    rescale_ms: ClassVar[float] = 10_000.0
    prewarms: ClassVar[bool] = True
    dispatches: ClassVar[bool] = False

    def __init__(self, context: PolicyContext) -> None:
        self.context = context

    @abstractmethod
    def candidates(self, request: SchedulingRequest) -> Sequence[Candidate]:
        """Return the configurations for the oldest jobs, best first; empty: do not run now."""

    def retry_at_ms(self, request: SchedulingRequest) -> float:  # noqa: ARG002 - for overrides
        """Return the time of the virtual clock to retry at; inf: at the next job.

        The engine calls it after an empty answer, and when no container of an answer is idle. In
        the second case a time in the past has the effect of inf.
        """
        return float("inf")

    def pool(self, key: QueueKey) -> PoolKey:
        """Return the pool of a queue (autoscaling policies): queues of one function may share it.

        Called once, before the first request.
        """
        return key[0], self.context.profile(key).metadata.name

    def desired_containers(
        self, now_ms: float, demand: Mapping[PoolKey, Demand]
    ) -> Mapping[PoolKey, Mapping[Configuration, int]]:
        """Return the containers that each pool should have from now on (autoscaling policies)."""
        raise NotImplementedError(
            f"policy {self.name} does not autoscale: override desired_containers"
        )

    def prewarm_delay_ms(self, key: QueueKey) -> float | None:  # noqa: ARG002 - same
        """Return the delay between a request's arrival and the start of a later stage's container.

        None: the engine's own prediction applies.
        """
        return None
