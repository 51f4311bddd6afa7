"""Dispatcher: requests of workflows in, batches on pods out.

The owner reports what happens (arrivals, ends of runs, pods) with the time, and does what `Actions`
asks for. Equal reports give equal decisions: the simulator and the gateway run this code.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any

from scheduler.dispatch.actions import Actions
from scheduler.dispatch.choice import OnLate
from scheduler.dispatch.namespace_plans import NamespacePlans
from scheduler.dispatch.passes import Passes
from scheduler.dispatch.pods import FunctionKey, Pod, PodState, Run
from scheduler.dispatch.requests import Job, Part, PlainPart, Request, WorkflowKey
from scheduler.dispatch.slice_table import SliceTable
from scheduler.dispatch.slices import Slice, SliceKey
from scheduler.dispatch.workflow_queues import (
    FAILURES_MAX,
    FunctionState,
    ServerSettings,
    WorkflowQueues,
)
from scheduler.model.catalogue import UnknownDocumentError
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.search.rules import Rules

_DEFAULT_RULES = Rules()


class Dispatcher:
    """Queues of workflows over pods of functions.

    Attributes:
        workflows, functions: state by key; read only.
    """

    def __init__(self, actions: Actions, rules: Rules = _DEFAULT_RULES) -> None:
        self._actions = actions
        self._plans = NamespacePlans(rules)
        self.workflows: dict[WorkflowKey, WorkflowQueues] = {}
        self.functions: dict[FunctionKey, FunctionState] = {}
        self._queue_numbers = count()
        self._requests: dict[WorkflowKey, dict[Request, None]] = {}
        self._slices = SliceTable()
        self._passes = Passes(
            self.functions,
            self._plans,
            self._slices,
            on_run=self._begin,
            on_drop=lambda job, now_ms: self._drop(job, "late", now_ms),
        )

    # -- documents -----------------------------------------------------------------------------

    def set_profile(self, profile: FunctionProfile) -> None:
        """Add or replace a profile; those of a workflow's functions come before the workflow."""
        self._plans.set_profile(profile)
        for key, function in self.functions.items():
            if key[1] == profile.metadata.name:
                function.set_profile(profile)
                self._plans.set_pods(function.pool)

    @property
    def profiles(self) -> Mapping[str, FunctionProfile]:
        """All profiles by name, as they were set."""
        return self._plans.profiles

    def set_workflow(
        self, document: Workflow, *, on_late: OnLate = "cheapest", now_ms: float
    ) -> None:
        """Add or replace a workflow. Where its stages change, its open requests are dropped.

        Raises:
            UnknownDocumentError: the profile of one of its functions is not known.
        """
        self._plans.set_workflow(document)
        key = document.key
        existing = self.workflows.get(key)
        if existing is not None and existing.document.spec.stages == document.spec.stages:
            existing.document, existing.on_late = document, on_late
        else:
            if existing is not None:
                self._remove_state(existing, now_ms)
            state = WorkflowQueues(document, on_late, self._queue_numbers, self._function)
            self.workflows[key] = state
            self._requests[key] = {}
            for queue in state.queues:
                queue.function.add_queue(queue)

    def remove_workflow(self, key: WorkflowKey, now_ms: float) -> None:
        """Remove a workflow; its open requests are dropped."""
        state = self.workflows.pop(key, None)
        if state is not None:
            self._plans.remove_workflow(key)
            self._remove_state(state, now_ms)

    def set_server(self, function: FunctionKey, settings: ServerSettings) -> None:
        """Set how the servers of a function take batches."""
        self._function(function).settings = settings

    # -- requests ------------------------------------------------------------------------------

    def arrive(  # noqa: PLR0913 - each by its name
        self,
        workflow: WorkflowKey,
        payload: Any,
        *,
        now_ms: float,
        deadline_ms: float | None = None,
        arrival_ms: float | None = None,
        stage: str | None = None,
    ) -> Request:
        """Take a request in.

        Args:
            workflow: key of the workflow.
            payload: any object; the owner gets it back with the request.
            now_ms: the clock.
            deadline_ms: time of the deadline, ms. Default: one SLO after the arrival.
            arrival_ms: time of the arrival, ms. Default: now.
            stage: the only stage to run; None: all of them.

        Raises:
            UnknownDocumentError: the workflow, or its stage, does not exist.
        """
        state = self.workflows.get(workflow)
        if state is None:
            raise UnknownDocumentError(f"workflow {'/'.join(workflow)} is not known; create it")
        if stage is not None and stage not in state.names:
            raise UnknownDocumentError(
                f"workflow {'/'.join(workflow)} has no stage {stage!r}; it has "
                f"{', '.join(state.names)}"
            )
        arrival_ms = now_ms if arrival_ms is None else arrival_ms
        if deadline_ms is None:
            deadline_ms = arrival_ms + state.document.spec.slo.latency_ms
        only = None if stage is None else state.names.index(stage)
        request = Request(
            workflow,
            state.graph,
            payload,
            arrival_ms=arrival_ms,
            deadline_ms=deadline_ms,
            only=only,
        )
        self._requests[workflow][request] = None
        entries = state.entries(stage)
        self._passes.look(self._enter(state, request, entries, None, "", now_ms), now_ms)
        return request

    def cancel(self, request: Request, now_ms: float) -> None:
        """Forget a request whose client has gone; what runs of it runs to its end."""
        if not request.ended:
            queues = self.workflows[request.workflow].queues
            functions = {queues[job.stage].function: None for job in request.waiting}
            self._close(request)
            self._passes.look(functions, now_ms)

    def wait_ms(self, workflow: WorkflowKey, stage: str | None, now_ms: float) -> float:
        """Return the predicted wait of a request that would arrive now; inf without a pod."""
        return self.workflows[workflow].wait_ms(stage, now_ms)

    def margin_ratio(self, workflow: WorkflowKey) -> float:
        """Return the margin that a workflow's objective needs from its first stages on."""
        return self._plans.margin_ratio(self.workflows[workflow])

    def queued_rows(self) -> dict[tuple[str, str, str], int]:
        """Return the rows that wait, by namespace, workflow and stage."""
        return {
            (*state.key, queue.name): queue.rows
            for state in self.workflows.values()
            for queue in state.queues
        }

    # -- pods ----------------------------------------------------------------------------------

    def add_pod(self, pod: Pod, now_ms: float) -> None:
        """Add a pod, which starts or is ready."""
        function = self._function(pod.function)
        if pod.pooled:
            self._slices.join(pod)
        if function.pool.add(pod):
            self._plans.set_pods(function.pool)
        self._passes.look([function], now_ms)

    def pod_ready(self, pod: Pod, now_ms: float) -> None:
        """End the start of a pod."""
        pod.state = PodState.READY
        pod.ready_ms = pod.idle_since_ms = now_ms
        function = self._function(pod.function)
        function.pool.sort_in(pod)
        self._passes.look([function], now_ms)

    def drain_pod(self, pod: Pod) -> None:
        """Give a pod no further batch; `remove_pod` when its runs have ended."""
        pod.state = PodState.DRAINING
        self._function(pod.function).pool.sort_in(pod)

    def remove_pod(self, pod: Pod, now_ms: float) -> list[Run]:
        """Remove a pod; return the runs that were on it, whose jobs wait for another pod now."""
        function = self._function(pod.function)
        if pod.name not in function.pool.pods:
            return []
        runs = list(pod.runs)
        if function.pool.remove(pod):
            self._plans.set_pods(function.pool)
        touched = {function: None}
        for run in runs:
            touched |= self._fail(run, now_ms, retryable=True)
        self._slices.leave(pod)
        self._passes.look_by_deadline(touched, now_ms)
        return runs

    @property
    def pods(self) -> Iterable[Pod]:
        """All pods."""
        return (pod for function in self.functions.values() for pod in function.pool.pods.values())

    # -- slices --------------------------------------------------------------------------------

    def set_slice(self, new: Slice, now_ms: float) -> None:
        """Add or replace the slice of a pool on a GPU; what runs there counts in the new one."""
        self._passes.look_at_pods(self._slices.set(new, now_ms), now_ms)

    def close_slice(self, namespace: str, gpu: str, now_ms: float) -> None:
        """Begin no further batch in a slice, until it is set again; what runs goes on."""
        self._passes.look_at_pods(self._slices.close((namespace, gpu)), now_ms)

    def remove_slice(self, namespace: str, gpu: str, now_ms: float) -> None:
        """Remove a slice; its pods get no batch, and what runs goes on."""
        self._passes.look_at_pods(self._slices.remove((namespace, gpu)), now_ms)

    def take_tokens(self, key: SliceKey, pod: str, percent: int, cpus: int, end_ms: float) -> None:
        """Take tokens of a slice for a batch that its owner begins itself, more than are free too.

        Each call needs one of `give_tokens_back`.
        """
        self._passes.reopen(self._slices.take(key, pod, percent, cpus, end_ms))

    def give_tokens_back(self, key: SliceKey, pod: str, now_ms: float) -> None:
        """End such a batch, also when its slice is closed or removed meanwhile."""
        self._passes.look_at_pods(self._slices.give_back(key, pod), now_ms)

    @property
    def slices(self) -> Sequence[Slice]:
        """All slices."""
        return self._slices.all()

    def slice_of(self, namespace: str, gpu: str) -> Slice | None:
        """Return the slice of a namespace on a GPU; None without one."""
        return self._slices.get((namespace, gpu))

    # -- runs ----------------------------------------------------------------------------------

    def run_ended(self, run: Run, now_ms: float) -> None:
        """End a run: its jobs enter the next stages."""
        if run.ended:
            return
        function = self.functions[run.pod.function]
        if function.observe(run, now_ms):
            self._plans.set_pods(function.pool)
        touched = self._leave_pod(run, now_ms)
        for job in run.jobs:
            if not job.request.ended:
                job.execute_ms += now_ms - run.execute_ms
                touched |= dict.fromkeys(self._advance(job, run.pod.node, now_ms))
        self._passes.look_by_deadline(touched, now_ms)

    def run_failed(self, run: Run, now_ms: float, *, retryable: bool, alone: bool = False) -> None:
        """End a run without an answer.

        Its jobs go to the front of their queue: at most twice, then each of them runs alone once,
        so that one bad input does not end a pool. With ``alone``, they run alone next. If
        ``retryable`` is false they are dropped.
        """
        if not run.ended:
            touched = self._fail(run, now_ms, retryable=retryable, alone=alone)
            self._passes.look_by_deadline(touched, now_ms)

    # -- time ----------------------------------------------------------------------------------

    def wake(self, now_ms: float) -> None:
        """Look at the queues whose time has come."""
        self._passes.wake(now_ms)

    @property
    def wake_at_ms(self) -> float:
        """When to call `wake`, unless something is reported before; inf: not at all."""
        return self._passes.wake_at_ms

    # -- walks through the workflow ------------------------------------------------------------

    def _enter(  # noqa: PLR0913, PLR0917 - of one step
        self,
        state: WorkflowQueues,
        request: Request,
        stages: Sequence[int],
        previous: Job | None,
        node: str,
        now_ms: float,
    ) -> list[FunctionState]:
        """Add the parts of a request to the queues of stages; return their functions."""
        touched: list[FunctionState] = []
        for stage in stages:
            queue = state.queues[stage]
            function = queue.function
            parts: Sequence[Part] | None = self._actions.enter(
                request, stage, function.pool.rows_max
            )
            if parts is None:
                self._close(request)
                return touched
            request.parts_left[stage] = len(parts)
            for part in parts:
                job = Job(request, stage, part, now_ms)
                if previous is None:
                    state.arrived_rows += part.rows
                else:
                    job.follows(previous, node)
                queue.add_waiting(job)
                queue.forecast.arrived(now_ms)
            touched.append(function)
        return touched

    def _advance(self, job: Job, node: str, now_ms: float) -> list[FunctionState]:
        """End a job at its stage; return the functions whose queues its request joins."""
        request = job.request
        if not request.part_ended(job.stage):
            return []
        ready = request.finish(job.stage)
        if request.only is not None or not request.unfinished:
            self._close(request)
            state = self.workflows[request.workflow]
            state.record(request, is_hit=now_ms <= request.deadline_ms)
            self._actions.end(request, job, now_ms)
            return []
        return self._enter(self.workflows[request.workflow], request, ready, job, node, now_ms)

    def _begin(self, run: Run) -> None:
        pod = run.pod
        run.count_waits()
        pod.runs.append(run)
        pod.served += 1
        self.functions[pod.function].pool.sort_in(pod)
        self._passes.take_tokens(run)
        self._actions.begin(run)

    def _leave_pod(
        self, run: Run, now_ms: float, *, tokens_until_ms: float = -inf
    ) -> dict[FunctionState, None]:
        """End a run on its pod; return the functions whose rows may run instead."""
        run.ended = True
        pod = run.pod
        pod.runs.remove(run)
        pod.idle_since_ms = pod.ran_until_ms = now_ms
        function = self.functions[pod.function]
        if pod.name in function.pool.pods:
            function.pool.sort_in(pod)
        freed = self._passes.give_tokens_back(run, now_ms, at_ms=tokens_until_ms)
        return {function: None} | freed

    def _fail(
        self, run: Run, now_ms: float, *, retryable: bool, alone: bool = False
    ) -> dict[FunctionState, None]:
        """End a run without an answer; return the functions whose rows may run instead."""
        # A server that refuses a batch has ended it; else it may go on there.
        until_ms = -inf if alone else run.lost_until_ms(now_ms)
        freed = self._leave_pod(run, now_ms, tokens_until_ms=until_ms)
        for job in reversed(run.jobs):
            if job.request.ended:
                continue
            job.attempts = max(job.attempts + 1, FAILURES_MAX if alone else 0)
            job.avoided |= {run.pod.name}
            if not retryable or job.attempts > FAILURES_MAX:
                self._drop(job, "failed", now_ms)
            else:
                job.since_ms = now_ms
                self.workflows[run.workflow].queues[run.stage].add_waiting(job)
        return freed

    # -- ends of requests ----------------------------------------------------------------------

    def _drop(self, job: Job, reason: str, now_ms: float) -> None:
        self._close(job.request)
        workflow = self.workflows[job.request.workflow]
        workflow.record(job.request, is_hit=False, has_failed=reason == "failed")
        self._actions.drop(job.request, job, reason, now_ms)

    def _close(self, request: Request) -> None:
        """End a request: nothing of it waits any more."""
        request.ended = True
        self._requests[request.workflow].pop(request, None)
        if request.waiting:
            queues = self.workflows[request.workflow].queues
            for job in list(request.waiting):
                queues[job.stage].discard(job)

    def _remove_state(self, state: WorkflowQueues, now_ms: float) -> None:
        for request in list(self._requests.pop(state.key)):
            request.ended = True
            job = next(iter(request.waiting), None) or Job(request, 0, PlainPart(), now_ms)
            request.waiting.clear()
            self._actions.drop(request, job, "removed", now_ms)
        for queue in state.queues:
            queue.function.remove_queue(queue)

    # -- functions -----------------------------------------------------------------------------

    def _function(self, key: FunctionKey) -> FunctionState:
        function = self.functions.get(key)
        if function is None:
            function = self.functions[key] = FunctionState(key, self._plans.profile(key[1]))
        return function
