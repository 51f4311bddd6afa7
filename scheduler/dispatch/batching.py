"""Batches of one function: which rows run next, on which pod, and which of them wait for better.

At every look the job with the least time to spare, over all queues of the function, chooses first.
A job that waits for a busy pod has that pod's next place promised to it, so that those behind it do
not count on the same one. Jobs that cannot be in time run where enough pods stay free for those
that are expected meanwhile: a late request must not make the next ones late. For the same reason
a job is late already if the rows that wait at later stages would make it so; and if hardly any
margin is left for run times that vary, where more rows wait than pods are free.
"""

from collections.abc import Callable
from math import inf

from scheduler.dispatch.choice import (
    BatchOption,
    OtherStageCosts,
    PodOption,
    in_time,
    without_limit,
)
from scheduler.dispatch.pods import Pod, Run
from scheduler.dispatch.requests import Job
from scheduler.dispatch.share_classes import ShareClass
from scheduler.dispatch.warm_plans import StagePlan, WarmPlans
from scheduler.dispatch.workflow_queues import DueQueue, FunctionState
from scheduler.model.plan import Prices

LATE_MS = 10_000.0  # after its deadline, a late job may run though others may need the pod
LATE_TIME_RATIO = 0.01  # of one pod's time: all such runs of a function together
LATE_FREE_PODS = 2  # more than rows expected during a late run, so that it takes no pod from them
LATE_ROWS_MAX = 0.5  # expected during it, where fewer pods are free
PROMISES_MAX = 16  # jobs that wait for a busy pod at one look; those behind them wait anyway

OnDrop = Callable[[Job, float], None]
OnRun = Callable[[Run], None]


class DispatchPass:
    """One look at the queues of a function, at one moment.

    Attributes:
        wake_ms: time of the next look; inf: at the next event.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        function: FunctionState,
        plans: WarmPlans,
        prices: Prices,
        now_ms: float,
        *,
        on_run: OnRun,
        on_drop: OnDrop,
    ) -> None:
        self._function = function
        self._plans = plans
        self._prices = prices
        self._now_ms = now_ms
        self._on_run = on_run
        self._on_drop = on_drop
        self._promised_ms: dict[Pod, float] = {}  # when a pod is free behind what waits for it
        self.wake_ms = inf

    def begin_batches(self) -> None:
        """Begin all batches that can begin."""
        self._drop_overdue()
        waiting: set[DueQueue] = set()
        while self._has_open_pod and len(waiting) < PROMISES_MAX:
            queue = self._first_due(waiting)
            if queue is None:
                break
            if not self._serve_first(queue):
                waiting.add(queue)
        if self._function.late_rows and self._has_open_pod:
            self._serve_late()
        for queue in self._function.queues:
            if queue.workflow.on_late == "drop" and queue.jobs:
                self.wake_ms = min(self.wake_ms, queue.deadline_ms)

    def _drop_overdue(self) -> None:
        """Drop jobs whose deadline is over, where their workflow says so; pods may all be busy."""
        for queue in self._function.queues:
            if queue.workflow.on_late == "drop":
                while queue.jobs and queue.deadline_ms <= self._now_ms:
                    job = queue.jobs[0]
                    queue.discard(job)
                    self._on_drop(job, self._now_ms)

    @property
    def _has_open_pod(self) -> bool:
        pods, promised_ms = self._function.pool.open, self._promised_ms
        if len(pods) > len(promised_ms):
            return True
        return any(pod not in promised_ms for pod in pods)

    def _first_due(self, waiting: set[DueQueue]) -> DueQueue | None:
        """Return the queue, but for those that wait, whose stage must end first.

        That is the latest end with which the other stages can be in time.
        """
        first: DueQueue | None = None
        first_ms = inf
        for queue in self._function.queues:
            if not queue.jobs or queue in waiting:
                continue
            due_ms = queue.deadline_ms - self._plan(queue).fastest_ms
            if (
                first is None
                or due_ms < first_ms
                or (due_ms == first_ms and queue.number < first.number)
            ):
                first, first_ms = queue, due_ms
        return first

    def _plan(self, queue: DueQueue) -> StagePlan:
        return self._plans.stage(queue.workflow.key, queue.name)

    def _serve_first(self, queue: DueQueue) -> bool:
        """Serve the first job of a queue; return false if it waits."""
        job = queue.jobs[0]
        plan = self._plan(queue)
        places = self._places(job)
        batches = queue.batches(job, self._function.pool.rows_max, self._function.settings.batching)
        others = self._other_costs(queue, plan, job)
        slack_ms = job.deadline_ms - self._now_ms
        if job.request.only is None:
            slack_ms -= queue.workflow.later_wait_ms(queue.stage)
        choice = in_time(
            places,
            batches,
            others,
            slack_ms=slack_ms,
            margin_ratio=plan.margin_ratio,
            parts_min=self._margin_parts_min,
        )
        if choice is None:
            if not places:
                return False
            if queue.workflow.on_late == "drop":
                queue.discard(job)
                self._on_drop(job, self._now_ms)
            else:
                queue.make_late(job)
            return True
        if not self._is_open(choice.place.pod):
            self._promise(choice)
            return False
        self._begin(queue, job, choice)
        return True

    @property
    def _margin_parts_min(self) -> int:
        """Parts of the margin without which a job is late: a run that probably fails takes none."""
        function = self._function
        return int(function.rows - function.late_rows > len(function.pool.open))

    def _other_costs(self, queue: DueQueue, plan: StagePlan, job: Job) -> OtherStageCosts:
        state = queue.workflow
        if not state.graph.has_siblings[queue.stage] or job.request.only is not None:
            return plan.others
        progress = job.request.progress(state.names, self._now_ms)
        slack_ms = job.deadline_ms - self._now_ms
        return self._plans.others(state.key, queue.name, progress, slack_ms)

    def _serve_late(self) -> None:
        """Run jobs that cannot be in time on pods that nobody else needs.

        The cheapest batch may run for seconds; where it would take a pod from others, the cheapest
        of the shorter ones runs.
        """
        function = self._function
        while True:
            queues = [queue for queue in function.queues if queue.late.jobs]
            if not queues:
                return
            queue = min(queues, key=lambda queue: (queue.late.deadline_ms, queue.number))
            job = queue.late.jobs[0]
            places = [place for place in self._places(job) if self._is_open(place.pod)]
            batches = queue.batches(job, function.pool.rows_max, function.settings.batching)
            others, fastest = self._plan(queue).others, queue.workflow.on_late == "fastest"
            spare_ms = self._spare_ms()
            choice = without_limit(places, batches, others, fastest=fastest, run_max_ms=spare_ms)
            if choice is None:
                choice = without_limit(places, batches, others, fastest=fastest)
                if choice is None:
                    return
                run_ms = choice.row.latency_ms
                if self._now_ms < max(job.deadline_ms + LATE_MS, function.late_from_ms):
                    self.wake_ms = min(self.wake_ms, self._now_ms + run_ms)
                    return
                function.late_from_ms = self._now_ms + run_ms / LATE_TIME_RATIO
            self._begin(queue, job, choice)

    def _spare_ms(self) -> float:
        """Return the longest late run: more than enough pods stay free, or no row is expected."""
        queues = self._function.queues
        rows_per_ms = sum(queue.forecast.expected_rows(1.0, self._now_ms) for queue in queues)
        free_pods = sum(map(self._is_open, self._function.pool.open))
        rows_max = max(free_pods - LATE_FREE_PODS, LATE_ROWS_MAX)
        return rows_max / rows_per_ms if rows_per_ms else inf

    # -- pods ----------------------------------------------------------------------------------

    def _is_open(self, pod: Pod) -> bool:
        return pod.is_open and pod not in self._promised_ms

    def _places(self, job: Job) -> list[PodOption]:
        """Return the best idle pod of each share and the one that is free soonest.

        Pods on which the job has failed do not count while there are others.
        """
        pool = self._function.pool
        avoided = job.avoided
        if avoided and all(pod.name in avoided for pod in pool.usable()):
            avoided = frozenset()
        places = []
        for share_class in pool.classes.values():
            if share_class.dollars is None:
                share_class.dollars = row_dollars(share_class, self._prices)
            dollars = share_class.dollars
            pod = self._pod(share_class, job.node, avoided)
            if pod is not None:
                free_in_ms = self._free_in_ms(pod) + self._function.settings.overhead_ms
                if free_in_ms < inf:
                    places.append(PodOption(pod, free_in_ms, share_class.rows, dollars))
        return places

    def _pod(self, share_class: ShareClass, node: str, avoided: frozenset[str]) -> Pod | None:
        """Return an open pod, on the node if there is one; otherwise the pod that is free soonest.

        A busy pod of the same share can run the same batches, only later; so can an idle one that
        waits for tokens.
        """
        best: Pod | None = None
        best_rank = (False, 0)
        closed: list[Pod] = []
        promised_ms = self._promised_ms
        for pod in reversed(share_class.idle):
            if pod in promised_ms or pod.name in avoided:
                continue
            if (gpu_slice := pod.slice) is None:
                rank = (pod.node == node or not node, 0)
                if rank[0]:
                    return pod
            elif pod.is_open:
                rank = (pod.node == node, gpu_slice.free_percent)
            else:
                closed.append(pod)
                continue
            if best is None or rank > best_rank:
                best, best_rank = pod, rank
        return best or self._soonest(share_class, closed, avoided)

    def _soonest(
        self, share_class: ShareClass, closed: list[Pod], avoided: frozenset[str]
    ) -> Pod | None:
        """Return the busy or closed pod of a class that is free soonest."""
        awaited = [pod for pod in self._promised_ms if pod.share == share_class.share]
        soonest: Pod | None = None
        soonest_ms = inf
        for pods in (share_class.busy, awaited, closed):
            for pod in pods:
                if pod.name in avoided:
                    continue
                free_in_ms = self._free_in_ms(pod)
                if soonest is None or free_in_ms < soonest_ms:
                    soonest, soonest_ms = pod, free_in_ms
        return soonest

    def _free_in_ms(self, pod: Pod) -> float:
        promised_ms = self._promised_ms.get(pod)
        return pod.free_in_ms(self._now_ms) if promised_ms is None else promised_ms - self._now_ms

    def _promise(self, choice: BatchOption) -> None:
        place = choice.place
        free_ms = self._now_ms + place.free_in_ms
        self._promised_ms[place.pod] = free_ms + choice.row.latency_ms
        self.wake_ms = min(self.wake_ms, free_ms)

    def _begin(self, queue: DueQueue, job: Job, choice: BatchOption) -> None:
        place = choice.place
        pod, batching = place.pod, self._function.settings.batching
        rows_max = max(choice.row.batch, job.rows)
        jobs = queue.take_with(job, rows_max, batching, pod)
        rows = sum(job.rows for job in jobs)
        row = next((row for row in place.rows if row.batch >= rows), choice.row)
        self._on_run(
            Run(
                pod=pod,
                workflow=queue.workflow.key,
                stage=queue.stage,
                jobs=jobs,
                batch=row.batch,
                latency_ms=row.latency_ms,
                profiled_ms=row.profiled_ms,
                begin_ms=self._now_ms,
                execute_ms=self._now_ms + place.free_in_ms,
            )
        )


def row_dollars(share_class: ShareClass, prices: Prices) -> list[float]:
    """Return the cost per request of each row of a class."""
    return [
        prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, c.batch, share_class.model)
        for c in share_class.profiled
    ]
