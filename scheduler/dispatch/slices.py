"""Slice of a GPU: percent and vCPUs that a pool holds, and the tokens in use.

A pooled pod holds GPU memory alone while it is idle. It takes tokens, its percent and its vCPUs,
from the slice of its GPU when a batch begins, and gives them back when its last batch has ended. So
the shares of all pods may exceed the slice, and those that run never do.

Batches are counted by the name of their pod: a process that another pod object stands for, because
its server has changed, may still have some.
"""

from math import inf
from typing import NamedTuple

OVERDUE_MS = 1.0  # so that a look at what is overdue is not repeated at the same moment

SliceKey = tuple[str, str]  # namespace, GPU


class SliceStart(NamedTuple):
    """A slice to add: percent and vCPUs of a GPU of a model."""

    namespace: str
    gpu_model: str
    percent: int
    cpus: int


class Tokens(NamedTuple):
    """Tokens of one pod that runs; ``end_ms`` is the predicted end of its last batch."""

    percent: int
    cpus: int
    end_ms: float
    batches: int


NO_TOKENS = Tokens(0, 0, -inf, 0)


class Slice:
    """Percent and vCPUs of one GPU.

    Attributes:
        key: namespace and GPU.
        node: node of the GPU; empty if the owner does not know it.
        gpu_model: model of the GPU; empty if the owner does not know it.
        percent, cpus: resources that the pool holds.
        open_from_ms: earliest begin of a batch; after a hand-over nobody knows what runs until
            then.
        is_limited: false where batches begin whatever runs, as without an arbiter; for simulations.
        is_open: true if batches may begin. The dispatcher sets it.
        is_closed: true if no batch will begin any more.
        used_percent, used_cpus: resources of the pods that run.
    """

    __slots__ = (
        "_tokens",
        "cpus",
        "gpu_model",
        "is_closed",
        "is_limited",
        "is_open",
        "key",
        "node",
        "open_from_ms",
        "percent",
        "used_cpus",
        "used_percent",
    )

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        namespace: str,
        gpu: str,
        node: str,
        percent: int,
        cpus: int,
        *,
        gpu_model: str = "",
        open_from_ms: float = -inf,
        is_limited: bool = True,
    ) -> None:
        self.key: SliceKey = (namespace, gpu)
        self.node = node
        self.gpu_model = gpu_model
        self.percent = percent
        self.cpus = cpus
        self.open_from_ms = open_from_ms
        self.is_limited = is_limited
        self.is_open = self.is_closed = False
        self.used_percent = self.used_cpus = 0
        self._tokens: dict[str, Tokens] = {}  # by pod

    @property
    def namespace(self) -> str:
        """Namespace of the pool."""
        return self.key[0]

    @property
    def gpu(self) -> str:
        """UUID of the GPU."""
        return self.key[1]

    @property
    def free_percent(self) -> int:
        """Percent that no pod uses."""
        return self.percent - self.used_percent

    @property
    def is_idle(self) -> bool:
        """True if no batch runs in it."""
        return not self._tokens

    def admits(self, pod: str, percent: int, cpus: int) -> bool:
        """Return true if a batch of a pod may begin now; a pod that runs has its tokens."""
        if not self.is_open:
            return False
        if not self.is_limited:
            return True
        had = self._tokens.get(pod, NO_TOKENS)
        if percent <= had.percent and cpus <= had.cpus:
            return True
        free_percent, free_cpus = self.percent - self.used_percent, self.cpus - self.used_cpus
        return percent - had.percent <= free_percent and cpus - had.cpus <= free_cpus

    def take(self, pod: str, percent: int, cpus: int, end_ms: float) -> None:
        """Take a pod's tokens for a batch that ends at ``end_ms``; it may have them already."""
        had = self._tokens.get(pod, NO_TOKENS)
        percent, cpus = max(percent, had.percent), max(cpus, had.cpus)
        if self.is_limited:
            self.used_percent += percent - had.percent
            self.used_cpus += cpus - had.cpus
        self._tokens[pod] = Tokens(percent, cpus, max(end_ms, had.end_ms), had.batches + 1)

    def give_back(self, pod: str) -> None:
        """End a batch of a pod; give its tokens back if that was its last one."""
        tokens = self._tokens[pod]
        if tokens.batches > 1:
            self._tokens[pod] = tokens._replace(batches=tokens.batches - 1)
            return
        del self._tokens[pod]
        if self.is_limited:
            self.used_percent -= tokens.percent
            self.used_cpus -= tokens.cpus

    def wait_ms(self, percent: int, cpus: int, now_ms: float) -> float:
        """Return the predicted time until so many tokens are free; inf: never, or not known."""
        if percent > self.percent or cpus > self.cpus:
            return inf
        wait_ms = 0.0 if self.is_open else max(self.open_from_ms - now_ms, OVERDUE_MS)
        free_percent, free_cpus = self.percent - self.used_percent, self.cpus - self.used_cpus
        if percent <= free_percent and cpus <= free_cpus:
            return wait_ms
        for tokens in sorted(self._tokens.values(), key=_end_ms):
            free_percent += tokens.percent
            free_cpus += tokens.cpus
            if percent <= free_percent and cpus <= free_cpus:
                return max(wait_ms, remaining_ms(tokens.end_ms, now_ms))
        return inf

    def succeed(self, predecessor: "Slice") -> None:
        """Account for the pods that run in the slice that this one replaces."""
        self._tokens = predecessor._tokens  # noqa: SLF001 - of its own class
        self.used_percent = predecessor.used_percent
        self.used_cpus = predecessor.used_cpus


def _end_ms(tokens: Tokens) -> float:
    return tokens.end_ms


def remaining_ms(end_ms: float, now_ms: float) -> float:
    """Return the predicted time until something ends.

    What exceeds its prediction is expected to take as long again as it has exceeded it by, and at
    least `OVERDUE_MS`.
    """
    return end_ms - now_ms if now_ms < end_ms else max(now_ms - end_ms, OVERDUE_MS)
