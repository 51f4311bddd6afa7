"""Pods of one function by their shares, and what each share can run.

MPS fixes a process's share when it starts, so a pod runs the profile's configurations of its own
GPU model, vCPUs and share; only the batch is free. Pods with the same share form a class, and a
decision looks at classes: at an idle pod of each, and at the one that is free soonest.
"""

from collections.abc import Iterable, Iterator

from scheduler.dispatch.pods import FunctionKey, Pod, PodState, Share
from scheduler.dispatch.run_times import Correction
from scheduler.model.documents import FunctionProfile, GpuProfile, ProfiledConfiguration


class BatchRow:
    """One profiled batch of a share.

    Attributes:
        latency_ms: expected run time; ``profiled_ms`` is the profile's, without correction.
    """

    __slots__ = ("batch", "latency_ms", "profiled_ms")

    def __init__(self, batch: int, latency_ms: float, profiled_ms: float) -> None:
        self.batch = batch
        self.latency_ms = latency_ms
        self.profiled_ms = profiled_ms


class ShareClass:
    """Pods of one function with equal shares.

    Attributes:
        rows: batches that the pods can run, the smallest first.
        model: GPU model of these rows in the profile.
        profiled: configurations of the pods, corrected.
        idle: ready pods without a run, the last used at the end.
        busy: other pods that run, or will run, batches.
        dollars: cost per request of each row, once a decision has needed it.
    """

    __slots__ = ("busy", "dollars", "idle", "model", "profiled", "rows", "share")

    def __init__(self, share: Share, profile: FunctionProfile, correction: Correction) -> None:
        self.share = share
        self.model, profiled = profiled_rows(profile, share)
        self.profiled = tuple(map(correction.configuration, profiled))
        self.rows = tuple(
            BatchRow(c.batch, c.latency_ms, measured.latency_ms)
            for c, measured in zip(self.profiled, profiled, strict=True)
        )
        self.idle: dict[Pod, None] = {}
        self.busy: dict[Pod, None] = {}
        self.dollars: list[float] | None = None

    def sort_in(self, pod: Pod) -> None:
        """Move a pod to the idle ones or to the busy ones, as its state is."""
        self.idle.pop(pod, None)
        self.busy.pop(pod, None)
        if pod.state is PodState.READY and not pod.runs:
            self.idle[pod] = None
        elif pod.state is not PodState.DRAINING:
            self.busy[pod] = None

    def remove(self, pod: Pod) -> None:
        """Forget a pod."""
        self.idle.pop(pod, None)
        self.busy.pop(pod, None)


class Pool:
    """All pods of one function.

    Attributes:
        profile: profile of the function.
        p95_ratio: largest p95 / latency of the profile's configurations; 0 where none has a p95.
        correction: correction of its run times.
        classes: class of each share.
        pods: all pods, by name.
        open: pods that take a batch now.
        rows_max: largest batch that a pod can run; without pods, the largest that was profiled.
    """

    def __init__(self, function: FunctionKey, profile: FunctionProfile) -> None:
        self.function = function
        self.profile = profile
        self.p95_ratio = _p95_ratio(profile)
        self.correction = Correction()
        self.classes: dict[Share, ShareClass] = {}
        self.pods: dict[str, Pod] = {}
        self.open: dict[Pod, None] = {}
        self.rows_max = self._largest_batch()

    def add(self, pod: Pod) -> bool:
        """Add a pod; return true if none has had its share."""
        self.pods[pod.name] = pod
        share_class = self.classes.get(pod.share)
        is_new = share_class is None
        if share_class is None:
            share_class = self.classes[pod.share] = ShareClass(
                pod.share, self.profile, self.correction
            )
            self.rows_max = self._largest_batch()
        self.sort_in(pod)
        return is_new

    def remove(self, pod: Pod) -> bool:
        """Remove a pod; return true if it was the last one with its share."""
        del self.pods[pod.name]
        self.open.pop(pod, None)
        self.classes[pod.share].remove(pod)
        if any(p.share == pod.share for p in self.pods.values()):
            return False
        del self.classes[pod.share]
        self.rows_max = self._largest_batch()
        return True

    def set_profile(self, profile: FunctionProfile) -> None:
        """Replace the profile, whose run times have no correction yet."""
        self.profile = profile
        self.p95_ratio = _p95_ratio(profile)
        self.correct(Correction())

    def correct(self, correction: Correction) -> None:
        """Expect run times with a correction."""
        self.correction = correction
        self.classes = {
            share: ShareClass(share, self.profile, correction) for share in self.classes
        }
        self.rows_max = self._largest_batch()
        for pod in self.pods.values():
            self.sort_in(pod)

    def sort_in(self, pod: Pod) -> None:
        """Update the class of a pod whose state has changed."""
        self.classes[pod.share].sort_in(pod)
        self.reopen(pod)

    def reopen(self, pod: Pod) -> None:
        """Update whether a pod takes a batch."""
        if pod.is_open:
            self.open[pod] = None
        else:
            self.open.pop(pod, None)

    def usable(self) -> Iterator[Pod]:
        """Yield the pods that run, or will run, batches."""
        for share_class in self.classes.values():
            yield from share_class.idle
            yield from share_class.busy

    def _largest_batch(self) -> int:
        largest = [share_class.rows[-1].batch for share_class in self.classes.values()]
        gpus = self.profile.spec.gpus
        return max(largest or [c.batch for gpu in gpus for c in gpu.configurations])


def profiled_rows(
    profile: FunctionProfile, share: Share
) -> tuple[str, tuple[ProfiledConfiguration, ...]]:
    """Return the configurations that a pod with this share can run, and the GPU model they are of.

    They are the profile's rows with the pod's model, vCPUs and percent, as far as its memory holds
    them. A pod that the scheduler did not grant may have a share that nobody measured. It then runs
    the rows of the nearest measured share below its own, so that predictions err on the slow side:
    first the largest percent up to the pod's, then the most vCPUs up to the pod's. Where even the
    smallest is larger, the smallest stands for it. A GPU model without a profile counts as the one
    that was profiled first. If no row fits the memory, the smallest batch is assumed to.
    """
    gpu = profile.gpu(share.gpu_model) or profile.spec.gpus[0]
    rows = _nearest(gpu, share)
    fitting = [row for row in rows if row.memory_mib <= share.memory_mib] or rows[:1]
    return gpu.model, tuple(fitting)


def _nearest(gpu: GpuProfile, share: Share) -> list[ProfiledConfiguration]:
    def below(values: Iterable[int], limit: int) -> int:
        distinct = set(values)
        return max((value for value in distinct if value <= limit), default=min(distinct))

    percent = below((c.gpu_percent for c in gpu.configurations), share.gpu_percent)
    rows = [c for c in gpu.configurations if c.gpu_percent == percent]
    cpu = below((c.cpu for c in rows), share.cpu)
    return sorted((c for c in rows if c.cpu == cpu), key=lambda c: c.batch)


def _p95_ratio(profile: FunctionProfile) -> float:
    ratios = [
        c.p95_ms / c.latency_ms
        for gpu in profile.spec.gpus
        for c in gpu.configurations
        if c.p95_ms is not None
    ]
    return max(ratios, default=0.0)
