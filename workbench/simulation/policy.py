"""What a policy is: it says under which configurations a queue's jobs may run, and nothing else.

The engine keeps the clock, the queues, the containers and the ledger. There are two kinds of
policies. One chooses when a queue is looked at: its candidates are tried in order, and the first
that a node holds runs at once. The other keeps a set of containers for each queue, which hold their
share of a GPU even while they are idle, and changes the set from time to time.

A user's own policy is a class of this kind under the entry point group ``esg_scheduler.policies``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import FunctionProfile
from scheduler.model.plan import Candidate, Configuration
from scheduler.search.rules import Rules

QueueKey = tuple[str, str, str]  # namespace, workflow, stage


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """What every policy may know from the start.

    Attributes:
        catalogue: workflows and profiles.
        rules: prices and the rest of the planning rules.
        gpu_models: those of the simulated cluster.
        noise_ratio: standard deviation of the logarithm of run time over profile.
        rate_rps: requests a second of each workflow that the workload is expected to bring, for
            policies that plan before the first request.
        random: the policy's own source of chance.
        candidates: K, how many configurations are tried in order.
        margin_ratio: by how much stages may run over their profile and still be in time.
        replan: whether the slack that is left is to be planned with; otherwise the part of the SLO
            that the split leaves from the stage on.
    """

    catalogue: Catalogue
    rules: Rules
    gpu_models: frozenset[str]
    noise_ratio: float
    rate_rps: Mapping[tuple[str, str], float]
    random: np.random.Generator
    candidates: int = 5
    margin_ratio: float = 0.0
    replan: bool = True

    def profile(self, key: QueueKey) -> FunctionProfile:
        """The profile of the function that the queue's stage runs."""
        namespace, workflow, name = key
        stage = self.catalogue.workflow(namespace, workflow).stage(name)
        if stage is None:
            raise UnknownDocumentError(f"workflow {namespace}/{workflow} has no stage {name!r}")
        return self.catalogue.profile(stage.function)


@dataclass(slots=True)
class SchedulingRequest:
    """A queue with jobs in it, at one moment. The engine reuses the object: keep nothing of it.

    Attributes:
        key: of the queue.
        now_ms: the virtual clock.
        queued: jobs that wait.
        slack_ms: until the deadline of the oldest job's request; negative when it is over.
        waited_ms: that the oldest job has waited here.
        missed: how often in a row no node held any candidate of this queue.
        starts_ms: how long a start takes on the kinds of nodes there are, warm ones first.
        noise: what run times will be multiplied by, for the oracle alone.
    """

    key: QueueKey
    now_ms: float
    queued: int
    slack_ms: float
    waited_ms: float
    missed: int
    starts_ms: tuple[float, ...]
    noise: float


@dataclass(frozen=True, slots=True)
class Demand:
    """What a queue saw since the last rescaling, for policies that keep containers."""

    rate_rps: float  # arrivals a second
    queued: int
    kept: Mapping[Configuration, int]  # containers it has, starting ones included


class Policy(ABC):
    """One policy in one run.

    Attributes:
        name: as ``esg simulate --policy`` takes it.
        keeps_containers: whether idle containers hold their share, and `rescaled` is asked.
        rescale_ms: the time between two rescalings.
        prewarms: whether the engine may start containers before the predicted next arrival.
    """

    name: ClassVar[str]
    keeps_containers: ClassVar[bool] = False
    rescale_ms: ClassVar[float] = 10_000.0
    prewarms: ClassVar[bool] = True

    def __init__(self, world: PolicyContext) -> None:
        self.world = world

    @abstractmethod
    def candidates(self, question: SchedulingRequest) -> Sequence[Candidate]:
        """What the oldest jobs may run under, best first; empty: not now."""

    def ask_again_ms(self, question: SchedulingRequest) -> float:  # noqa: ARG002 - for those that override it
        """When, on the virtual clock, to ask again; inf: at the next job.

        It is asked after an empty answer, and where no container of an answer is idle: then a time
        that is past is as good as inf.
        """
        return float("inf")

    def rescaled(
        self, now_ms: float, demand: Mapping[QueueKey, Demand]
    ) -> Mapping[QueueKey, Mapping[Configuration, int]]:
        """The containers that each queue should have from now on; of those that keep them."""
        raise NotImplementedError(f"policy {self.name} keeps no containers")

    def prewarm_delay_ms(self, key: QueueKey) -> float | None:  # noqa: ARG002 - same
        """After a request's arrival: when a container for a later stage is started; None: ours."""
        return None
