"""Queues of the workflows' stages, and those of one function with its pods."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Literal

from scheduler.dispatch.choice import Batches, OnLate
from scheduler.dispatch.dispersion import Dispersion
from scheduler.dispatch.forecast import Forecast
from scheduler.dispatch.hit_rate import FurtherReserve, HitRate
from scheduler.dispatch.pods import FunctionKey, Pod, Run
from scheduler.dispatch.queues import JobQueue
from scheduler.dispatch.requests import Job, Request, WorkflowKey
from scheduler.dispatch.run_times import RunTimes
from scheduler.dispatch.share_classes import Pool
from scheduler.dispatch.stage_graph import StageGraph
from scheduler.model.documents import FunctionProfile, Workflow

Batching = Literal["gateway", "server", "none"]
FAILURES_MAX = 2  # of a batch; then each of its parts runs alone once


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of the servers of one function.

    Attributes:
        batching: ``gateway``: rows of several requests share a run. ``server``: the same, and the
            owner sends them as single requests, for the server to join. ``none``: each part of a
            request runs alone.
        overhead_ms: time of a run outside the model: transfer of its input.
    """

    batching: Batching = "gateway"
    overhead_ms: float = 0.0


class DueQueue(JobQueue[Job]):
    """Waiting jobs of one stage of one workflow that can still be in time, and those that cannot.

    Attributes:
        workflow: state of the workflow.
        stage: index in the workflow; ``name`` is its name.
        function: the pods that serve it.
        late: jobs that cannot be in time any more.
        forecast: forecast of the next row.
        number: among all queues of a dispatcher.
        rows: number of rows that wait.
    """

    __slots__ = (
        "forecast",
        "function",
        "late",
        "name",
        "number",
        "rows",
        "stage",
        "workflow",
    )

    def __init__(
        self,
        workflow: "WorkflowQueues",
        stage: int,
        name: str,
        function: "FunctionState",
        number: int,
    ) -> None:
        super().__init__()
        self.workflow = workflow
        self.stage = stage
        self.name = name
        self.function = function
        self.number = number
        self.late: JobQueue[Job] = JobQueue()
        self.forecast = Forecast()
        self.rows = 0

    def add_waiting(self, job: Job) -> None:
        """Add a job; one that has failed goes to the front."""
        job.request.waiting[job] = None
        self.rows += job.rows
        self.function.rows += job.rows
        if job.late:
            self._add_late(job)
        elif job.attempts:
            self.jobs.appendleft(job)
        else:
            self.add(job)

    def discard(self, job: Job) -> None:
        """Remove a waiting job."""
        del job.request.waiting[job]
        self.rows -= job.rows
        self.function.rows -= job.rows
        if job.late:
            self.function.late_rows -= job.rows
            self.late.jobs.remove(job)
        else:
            self.jobs.remove(job)

    def make_late(self, job: Job) -> None:
        """Move a job to those that cannot be in time."""
        self.jobs.remove(job)
        job.late = True
        self._add_late(job)

    def _add_late(self, job: Job) -> None:
        self.function.late_rows += job.rows
        self.workflow.record(job.request, is_hit=False)
        self.late.add(job)

    def late_rows_since(self, since_ms: float) -> int:
        """Return the rows of the last late jobs, back to one that joined before a time.

        A job that joined after its deadline does not count: no pod could have helped it.
        """
        young = takewhile(lambda job: job.since_ms >= since_ms, reversed(self.late.jobs))
        return sum(job.rows for job in young if job.deadline_ms > job.since_ms)

    def batches(self, job: Job, rows_max: int, batching: Batching) -> Batches:
        """Return the batches that suit a job and those that can share its run."""
        rows = sum(waiting.rows for waiting in self._together(job, rows_max, batching, None))
        return Batches(job.rows, rows)

    def take_with(self, job: Job, rows_max: int, batching: Batching, pod: Pod) -> list[Job]:
        """Remove a job and those that share its run on a pod."""
        jobs = self._together(job, rows_max, batching, pod)
        for taken_job in jobs:
            self.discard(taken_job)
        return jobs

    def _together(self, job: Job, rows_max: int, batching: Batching, pod: Pod | None) -> list[Job]:
        together, rows = [job], job.rows
        if batching == "none" or job.attempts >= FAILURES_MAX:
            return together
        for candidate in (self.late if job.late else self).jobs:
            if rows >= rows_max:
                break
            if (
                candidate is not job
                and candidate.joinable == job.joinable
                and rows + candidate.rows <= rows_max
                and candidate.attempts < FAILURES_MAX
                and (pod is None or pod.name not in candidate.avoided)
            ):
                together.append(candidate)
                rows += candidate.rows
        return together


class WorkflowQueues:
    """One workflow with its queues, by stage.

    Args:
        document: document of the workflow.
        on_late: service of requests that cannot be in time.
        numbers: source of numbers for queues.
        function: returns the state of a function.

    Attributes:
        on_late: service of requests that cannot be in time.
        arrived_rows: number of rows with which requests have entered its first stages.
        reserve: reserve of its pods beyond that of the staffing.
    """

    __slots__ = (
        "_hit_rate",
        "arrived_rows",
        "document",
        "graph",
        "key",
        "names",
        "on_late",
        "queues",
        "reserve",
    )

    def __init__(
        self,
        document: Workflow,
        on_late: OnLate,
        numbers: Iterator[int],
        function: "Callable[[FunctionKey], FunctionState]",
    ) -> None:
        self.key: WorkflowKey = document.key
        self.document = document
        self.on_late: OnLate = on_late
        self.arrived_rows = 0
        self._hit_rate = HitRate(self.objective_ratio)
        self.reserve = FurtherReserve()
        stages = document.spec.stages
        self.graph = StageGraph(stages)
        self.names = [stage.name for stage in stages]
        self.queues = [
            DueQueue(self, i, stage.name, function((self.key[0], stage.function)), next(numbers))
            for i, stage in enumerate(stages)
        ]

    @property
    def objective_ratio(self) -> float:
        """Ratio of the requests that must be in time."""
        return self.document.spec.slo.objective

    def record(self, request: Request, *, is_hit: bool, has_failed: bool = False) -> None:
        """Record that a request was in time, or cannot be any more; once for each request.

        One whose runs ``has_failed`` is a miss that no further pod would have served.
        """
        if request.arrived_in_time and not request.recorded:
            request.recorded = True
            self._hit_rate.record(is_hit=is_hit)
            if not has_failed:
                self.reserve.record(self.objective_ratio, is_hit=is_hit)

    @property
    def shortfall_ratio(self) -> float:
        """Recent misses above those that the objective allows, as a ratio of these."""
        return self._hit_rate.shortfall_ratio(self.objective_ratio)

    def entries(self, stage: str | None) -> Sequence[int]:
        """Return the stages that a request enters first; ``stage`` is the only one that it runs."""
        return self.graph.entries if stage is None else [self.names.index(stage)]

    def rows_ahead(self, stage: str | None) -> int:
        """Return the rows that wait in front of a request that would arrive now."""
        return sum(self.queues[index].function.rows for index in self.entries(stage))

    def wait_ms(self, stage: str | None, now_ms: float) -> float:
        """Return the predicted wait of a request that would arrive now; inf without a pod."""
        return max(self.queues[index].function.wait_ms(now_ms) for index in self.entries(stage))

    def later_wait_ms(self, stage: int) -> float:
        """Return the predicted wait at the stages behind one, on the longest way through them."""
        behind = self.graph.behind[stage]
        for i in behind:
            if self.queues[i].function.has_due_rows:
                break
        else:  # mostly
            return 0.0
        wait_ms: dict[int, float] = {}
        for i in behind:
            after = [wait_ms[successor] for successor in self.graph.successors[i]]
            wait_ms[i] = self.queues[i].function.due_wait_ms + max(after, default=0.0)
        return max((wait_ms[i] for i in self.graph.successors[stage]), default=0.0)


class FunctionState:
    """The pods of one function and the queues that they serve.

    Attributes:
        queues: queues of all stages that run the function.
        run_times: observed run times of the pods, relative to the profile.
        dispersion: dispersion of the rows that arrive for them.
        rows: number of rows that wait in them; ``late_rows`` of these cannot be in time any more.
        late_from_ms: time from which a late row may run though others may need the pod.
        wake_ms: time of the next look at it without an event.
    """

    def __init__(self, key: FunctionKey, profile: FunctionProfile) -> None:
        self.key = key
        self.pool = Pool(key, profile)
        self.settings = ServerSettings()
        self.run_times = RunTimes()
        self.dispersion = Dispersion()
        self.queues: dict[DueQueue, None] = {}
        self.rows = self.late_rows = 0
        self.late_from_ms = -inf
        self.wake_ms = inf

    def set_profile(self, profile: FunctionProfile) -> None:
        """Replace the profile; run times that were observed with another one count no longer."""
        if profile != self.pool.profile:
            self.run_times = RunTimes()
            self.pool.set_profile(profile)

    def observe(self, run: Run, now_ms: float) -> bool:
        """Record the time of a run that ends; return true if other times are expected now.

        Batches with fewer rows than the profile's do not count, nor does the first one of a pod.
        """
        pod = run.pod
        if run.rows != run.batch or pod.ran_until_ms == -inf:
            return False
        begin_ms = max(run.begin_ms + self.settings.overhead_ms, pod.ran_until_ms)
        if not self.run_times.observe(now_ms - begin_ms, run.profiled_ms):
            return False
        self.pool.correct(self.run_times.correction)
        return True

    @property
    def cold_start_ms(self) -> float:
        """Time from a pod's start to its first batch, by the profile."""
        return self.pool.profile.spec.cold_start_ms

    @property
    def slow_start_ms(self) -> float:
        """95th percentile of that time, for what must be ready by then."""
        return self.pool.profile.spec.slow_start_ms

    def add_queue(self, queue: DueQueue) -> None:
        """Serve a queue, which is empty."""
        self.queues[queue] = None

    def remove_queue(self, queue: DueQueue) -> None:
        """Serve a queue no longer; what waits in it does not count any more."""
        del self.queues[queue]
        self.rows -= queue.rows
        self.late_rows -= sum(job.rows for job in queue.late.jobs)

    @property
    def shortfall_ratio(self) -> float:
        """Largest shortfall of the workflows that it serves."""
        return max((queue.workflow.shortfall_ratio for queue in self.queues), default=0.0)

    @property
    def reserve_ratio(self) -> float:
        """Largest further reserve of the workflows that it serves."""
        return max((queue.workflow.reserve.ratio for queue in self.queues), default=0.0)

    @property
    def drops_late(self) -> bool:
        """True if requests of one of its queues are dropped at their deadline."""
        for queue in self.queues:  # noqa: SIM110 - a generator takes longer than the loop
            if queue.workflow.on_late == "drop":
                return True
        return False

    def wait_ms(self, now_ms: float) -> float:
        """Return the predicted time until a row that joins now would run; inf without a pod."""
        soonest_ms = inf
        for share_class in self.pool.classes.values():
            pods = (*share_class.idle, *share_class.busy)
            soonest_ms = min([soonest_ms, *(pod.free_in_ms(now_ms) for pod in pods)])
        return soonest_ms + self.serve_ms(self.rows) if soonest_ms < inf else inf

    @property
    def has_due_rows(self) -> bool:
        """True if rows wait that can be in time."""
        return self.rows != self.late_rows

    @property
    def due_wait_ms(self) -> float:
        """Time in which its pods serve the waiting rows that can be in time; 0 without a pod."""
        rows = self.rows - self.late_rows
        return self.serve_ms(rows) if rows else 0.0  # mostly 0: no look at the pods then

    def serve_ms(self, rows: int) -> float:
        """Return the time in which its ready pods serve rows; 0 without a pod."""
        rows_per_ms = 0.0
        for share_class in self.pool.classes.values():
            best = max(row.batch / row.latency_ms for row in share_class.rows)
            rows_per_ms += best * (len(share_class.idle) + len(share_class.busy))
        return rows / rows_per_ms if rows_per_ms else 0.0
