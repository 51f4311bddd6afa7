"""Runtime of the gateway: calls enter the dispatcher, and its batches go to model servers.

It runs on one event loop. The dispatcher decides whenever something is reported to it.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import FunctionKey, Pod, PodStart, PodState, Run
from scheduler.dispatch.requests import Job, Request, WorkflowKey
from scheduler.dispatch.slices import Slice, SliceKey
from scheduler.dispatch.workflow_queues import ServerSettings
from scheduler.gateway.calls import RETRY_AFTER_S, CallError, InferAnswer, InferCall
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.serving.batch_runner import BatchRunner
from scheduler.gateway.serving.call_log import CallLog
from scheduler.gateway.serving.call_trace import TraceRing
from scheduler.gateway.serving.connected_pods import ConnectedPods, ConnectServer
from scheduler.gateway.serving.dispatch_timer import DispatchTimer
from scheduler.gateway.serving.pod_probes import PodProbes
from scheduler.gateway.serving.recorder import CallRecorder
from scheduler.gateway.serving.served_call import ServedCall
from scheduler.gateway.serving.served_workflow import ServedWorkflow
from scheduler.gateway.serving.unserved_calls import UnservedCalls
from scheduler.gateway.serving.workflow_directory import ColdStartRefusal, WorkflowDirectory
from scheduler.model.documents import FunctionProfile, OnLate, Workflow
from scheduler.model.function_server import FunctionServer
from scheduler.oip.batch import RowRange
from scheduler.oip.errors import MessageError
from scheduler.search.rules import Rules

log = structlog.get_logger(__name__)


class Runtime:
    """Answers calls; the documents, and the pods that serve them, are reported to it.

    Args:
        rules: rules of planning.
        recorder: receiver of reports for metrics.
        connect: opens the client of a pod's model server.
        rows_max: largest number of rows that may wait in the queues that a call enters.
        on_late: service of late calls whose workflow does not name one.

    Attributes:
        is_draining: true if new calls are refused.
        traces: stages of calls that were late, and of a sample of the others.
        call_log: ends of the last calls and batches.
        on_waiting: callback for each call that finds no free pod.
    """

    def __init__(
        self,
        rules: Rules,
        recorder: CallRecorder,
        connect: ConnectServer,
        *,
        rows_max: int,
        on_late: OnLate = "cheapest",
    ) -> None:
        self.traces = TraceRing()
        self.call_log = CallLog()
        self._recorder = recorder
        self._rows_max = rows_max
        self._on_late: OnLate = on_late
        self._dispatcher = Dispatcher(self, rules)
        self._loop = asyncio.get_running_loop()
        self._timer = DispatchTimer(self._dispatcher, self._loop)
        self._pods = ConnectedPods(connect)
        self._probes = PodProbes(self._dispatcher, self._pods, self._timer.set)
        self._workflows = WorkflowDirectory(self._pods)
        self._unserved = UnservedCalls(self._dispatcher, self._workflows)
        self._batches = BatchRunner(
            self._dispatcher,
            self._pods,
            recorder,
            self.call_log,
            on_report=self._timer.set,
        )
        self._batches.on_unreachable = self._probes.pod_unreachable
        self._json_only: set[FunctionKey] = set()  # functions whose servers take no binary data
        self._closing: set[asyncio.Task[None]] = set()
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_draining = False
        self.on_waiting: Callable[[], None] = lambda: None

    def now_ms(self) -> float:
        """Return the time of the event loop's clock."""
        return self._timer.now_ms()

    def unix_offset_ms(self) -> float:
        """Return Unix time at zero of that clock."""
        return 1000 * time.time() - self.now_ms()

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher, for a scaler."""
        return self._dispatcher

    def set_cold_starts(self, refusal: ColdStartRefusal) -> None:
        """Let calls wait for the start of a pod of each function without a refusal."""
        self._workflows.cold_start_refusal = refusal

    # -- calls ---------------------------------------------------------------------------------

    def check(self, namespace: str, workflow: str, stage: str | None, body_bytes: int) -> None:
        """Check a call before its body is read; see `scheduler.gateway.calls.Backend`."""
        del body_bytes  # fronts bound the memory of bodies themselves
        try:
            self._check_draining()
            self._workflows.check_pods(namespace, workflow, stage)
            self._check_backlog((namespace, workflow), stage)
        except CallError as error:
            self._recorder.call_refused((namespace, workflow), error.status)
            raise

    def _check_draining(self) -> None:
        if self.is_draining:
            raise CallError(503, "the gateway is shutting down; send the request again", 0.0)

    def _check_backlog(self, workflow: WorkflowKey, stage: str | None) -> None:
        rows = self._dispatcher.workflows[workflow].rows_ahead(stage)
        if rows < self._rows_max:
            return
        wait_s = self._dispatcher.wait_ms(workflow, stage, self.now_ms()) / 1000
        raise CallError(
            429,
            f"{rows:,} rows wait in front of this request, and the limit is {self._rows_max:,}; "
            "send the request again later",
            max(RETRY_AFTER_S, wait_s) if wait_s < math.inf else RETRY_AFTER_S,
        )

    def submit(self, call: InferCall) -> "asyncio.Future[InferAnswer]":
        """Start a call; see `scheduler.gateway.calls.Backend`."""
        answer: asyncio.Future[InferAnswer] = self._loop.create_future()
        try:
            served = self._workflows.workflow(call.namespace, call.workflow)
            only = served.index(call.stage)
            self._check_form(call, served, only)
        except (CallError, MessageError) as error:
            answer.set_exception(error)
            return answer
        timeout_ms = math.inf if call.timeout_ms is None else call.timeout_ms
        served_call = ServedCall(call, served, only, answer)
        self._open += 1
        self._idle.clear()
        request = self._dispatcher.arrive(
            served.key,
            served_call,
            now_ms=self.now_ms(),
            arrival_ms=call.arrival_ms,
            deadline_ms=call.arrival_ms + min(served.slo_ms, timeout_ms),
            stage=call.stage,
        )
        timer = None
        if timeout_ms < math.inf:
            end_s = (call.arrival_ms + timeout_ms) / 1000
            timer = self._loop.call_at(end_s, served_call.time_out, timeout_ms)
        answer.add_done_callback(lambda _: self._call_ended(request, served_call, timer))
        self._timer.set()
        if request.waiting:
            self.on_waiting()
        return answer

    def _check_form(self, call: InferCall, served: ServedWorkflow, only: int | None) -> None:
        try:
            served.check(call.request, only, self._probes.signatures)
        except MessageError as error:
            self._recorder.call_refused(served.key, error.status)
            self._probes.reread(served.functions)
            raise

    def ready(
        self, namespace: str | None = None, workflow: str | None = None, stage: str | None = None
    ) -> bool:
        """Return true if it answers calls; see `scheduler.gateway.calls.Backend`."""
        if namespace is None or workflow is None:
            return not self.is_draining
        return not self._workflows.unserved(namespace, workflow, stage)

    async def metadata(self, namespace: str, workflow: str, stage: str | None) -> dict[str, Any]:
        """Return the inputs of the first stages and the outputs of the last ones."""
        return await self._workflows.metadata(namespace, workflow, stage)

    def queued_rows(self) -> Mapping[tuple[str, str, str], int]:
        """Return the rows that wait, by namespace, workflow and stage."""
        return self._dispatcher.queued_rows()

    async def refuse_unserved(self) -> None:
        """Refuse late calls whose functions have no pod for long; call it every few seconds."""
        self._unserved.refuse(self.now_ms())

    async def drain(self, timeout_s: float) -> None:
        """Refuse new calls, and wait until all others are answered."""
        self.is_draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            log.warning("calls without an answer at the end of the drain", calls=self._open)

    async def close(self) -> None:
        """End all batches and connections."""
        for name in self._pods.names():
            self.remove_pod(name)
        self._timer.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)

    # -- documents and pods --------------------------------------------------------------------

    def set_profile(self, profile: FunctionProfile) -> None:
        """Add or replace a profile, before the workflows and servers that use it."""
        self._dispatcher.set_profile(profile)
        self._timer.set()

    def set_workflow(self, workflow: Workflow) -> None:
        """Add or replace a workflow.

        Raises:
            UnknownDocumentError: a profile is missing.
        """
        on_late = workflow.spec.on_late or self._on_late
        self._dispatcher.set_workflow(workflow, on_late=on_late, now_ms=self.now_ms())
        self._workflows.add(ServedWorkflow(workflow))
        self._timer.set()

    def remove_workflow(self, key: WorkflowKey) -> None:
        """Remove a workflow; its open calls are refused."""
        if self._workflows.remove(key):
            self._dispatcher.remove_workflow(key, self.now_ms())
            self._timer.set()

    def set_server(self, server: FunctionServer, profile: FunctionProfile) -> None:
        """Add or replace the server of a function and its profile, before its pods."""
        function = server.function_key
        self.set_profile(profile)
        self._dispatcher.set_server(function, ServerSettings(batching=server.spec.batching))
        if server.spec.protocol == "http-json":
            self._json_only.add(function)
        else:
            self._json_only.discard(function)
        self._timer.set()

    def remove_server(self, function: FunctionKey) -> None:
        """Forget the server of a function, whose pods are removed."""
        self._json_only.discard(function)

    def expect_pod(self, name: str, start: PodStart, *, slots: int, ready_ms: float) -> None:
        """Count on a pod that was asked for, until `add_pod` or `remove_pod`."""
        function, share, pooled = start
        pod = Pod(name, function, share, slots=slots, ready_ms=ready_ms, pooled=pooled)
        self._pods.expect(pod)
        self._dispatcher.add_pod(pod, self.now_ms())
        self._timer.set()

    def add_pod(self, server_pod: ServerPod) -> None:
        """Add a pod of a known server; it gets batches once it is ready."""
        now_ms = self.now_ms()
        pod, expected = self._pods.add(server_pod, now_ms)
        if pod is expected:
            if server_pod.draining:
                self._dispatcher.drain_pod(pod)
        else:
            if expected is not None:
                self._dispatcher.remove_pod(expected, now_ms)
            self._dispatcher.add_pod(pod, now_ms)
        if pod.state is PodState.READY and (connected := self._pods.get(pod.name)) is not None:
            self._probes.start(connected)
        self._timer.set()

    def is_running(self, name: str) -> bool:
        """Return true if a pod has a batch."""
        connected = self._pods.get(name)
        return connected is not None and bool(connected.pod.runs)

    def is_ready(self, name: str) -> bool:
        """Return true if a pod gets batches."""
        connected = self._pods.get(name)
        return connected is not None and connected.pod.state is PodState.READY

    def pod_ready(self, name: str) -> None:
        """Give a pod batches from now on."""
        connected = self._pods.get(name)
        if connected is not None and connected.pod.state is not PodState.READY:
            self._dispatcher.pod_ready(connected.pod, self.now_ms())
            self._probes.start(connected)
            self._timer.set()

    def drain_pod(self, name: str) -> None:
        """Give a pod no further batch; those on it run to their end."""
        if (connected := self._pods.get(name)) is not None:
            self._dispatcher.drain_pod(connected.pod)
            self._probes.stop(connected)
            connected.server.close_idle()
            self._timer.set()

    def remove_pod(self, name: str) -> None:
        """Remove a pod that is gone; its batches go to another one."""
        if (expected := self._pods.forget_expected(name)) is not None:
            self._dispatcher.remove_pod(expected, self.now_ms())
        connected = self._pods.remove(name)
        if connected is None:
            return
        tasks = list(connected.tasks.values())
        self._dispatcher.remove_pod(connected.pod, self.now_ms())
        self._probes.stop(connected)
        for task in tasks:
            task.cancel()
        closing = self._loop.create_task(connected.server.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        self._timer.set()

    # -- slices --------------------------------------------------------------------------------

    def set_slice(self, gpu_slice: Slice) -> None:
        """Add or replace a slice."""
        self._dispatcher.set_slice(gpu_slice, self.now_ms())
        self._timer.set()

    def take_tokens(self, key: SliceKey, pod: str, percent: int, cpus: int, run_ms: float) -> None:
        """Take tokens for a batch of an expected time that the dispatcher does not begin."""
        self._dispatcher.take_tokens(key, pod, percent, cpus, self.now_ms() + run_ms)

    def give_tokens_back(self, key: SliceKey, pod: str) -> None:
        """End such a batch; begin those that its tokens allow."""
        self._dispatcher.give_tokens_back(key, pod, self.now_ms())
        self._timer.set()

    def close_slice(self, namespace: str, gpu: str) -> None:
        """Begin no batch in a slice; those that run go on."""
        self._dispatcher.close_slice(namespace, gpu, self.now_ms())
        self._timer.set()

    def remove_slice(self, namespace: str, gpu: str) -> None:
        """Remove a slice in which nothing runs."""
        self._dispatcher.remove_slice(namespace, gpu, self.now_ms())
        self._timer.set()

    # -- actions of the dispatcher -------------------------------------------------------------

    def enter(self, request: Request, stage: int, rows_max: int) -> Sequence[RowRange] | None:
        """Cut a call into the parts with which it enters a stage; None: it has failed."""
        served_call: ServedCall = request.payload
        try:
            binary = served_call.served.functions[stage] not in self._json_only
            return served_call.enter(stage, rows_max, binary=binary)
        except MessageError as error:
            served_call.fail(error)
            return None

    def begin(self, run: Run) -> None:
        """Send a batch to its pod."""
        self._batches.begin(run)

    def end(self, request: Request, job: Job, now_ms: float) -> None:
        """Answer a call."""
        del now_ms
        served_call: ServedCall = request.payload
        try:
            served_call.succeed(job)
        except MessageError as error:
            served_call.fail(error)

    def drop(self, request: Request, job: Job, reason: str, now_ms: float) -> None:
        """Refuse a call that the dispatcher has given up."""
        served_call: ServedCall = request.payload
        if reason == "late":
            served_call.add_waits([job], self._dispatcher.functions)
        served_call.drop(job, reason, now_ms - request.arrival_ms)

    # -- ends of calls -------------------------------------------------------------------------

    def _call_ended(
        self,
        request: Request,
        served_call: ServedCall,
        timer: asyncio.TimerHandle | None,
    ) -> None:
        if timer is not None:
            timer.cancel()
        self._open -= 1
        if not self._open:
            self._idle.set()
        now_ms = self.now_ms()
        if not request.ended:  # the client has gone, or its limit is over
            served_call.add_waits(request.waiting, self._dispatcher.functions)
            self._dispatcher.cancel(request, now_ms)
            self._timer.set()
        served_call.record(self._recorder, self.traces, self.call_log, request, now_ms)
