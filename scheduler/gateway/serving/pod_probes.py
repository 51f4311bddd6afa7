"""Questions to the model servers of pods: what their models take, and whether they are back."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping

import structlog

from scheduler.cluster.backoff import Backoff
from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import FunctionKey, PodState
from scheduler.gateway.model_server import CLIENT_ERRORS, ModelServerError
from scheduler.gateway.serving.connected_pods import ConnectedPod, ConnectedPods
from scheduler.oip.model_signature import ModelSignature, read_signature

log = structlog.get_logger(__name__)
_REREAD_S = 1.0  # between two refusals that have the metadata of a function read again


class PodProbes:
    """Reads the metadata of ready pods, and waits for those that refused connections.

    Attributes:
        signatures: signature of each function whose ready pods all have it; another dictionary
            after each change. During a rollout, a pod may take what another one does not.

    Args:
        dispatcher: dispatcher of the pods.
        pods: clients of the pods' model servers.
        on_report: callback after each report to the dispatcher.
    """

    def __init__(
        self, dispatcher: Dispatcher, pods: ConnectedPods, on_report: Callable[[], None]
    ) -> None:
        self.signatures: Mapping[FunctionKey, ModelSignature] = {}
        self._dispatcher = dispatcher
        self._pods = pods
        self._on_report = on_report
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[ConnectedPod, asyncio.Task[None]] = {}
        self._reread_s: dict[FunctionKey, float] = {}

    def start(self, connected: ConnectedPod) -> None:
        """Read the metadata of a pod that serves from now on."""
        connected.signature = None
        self._start(connected, self._read_metadata(connected))

    def pod_unreachable(self, connected: ConnectedPod) -> None:
        """Give a pod no batch until its server is back, even if it is the last of its function."""
        pod = connected.pod
        if pod.state is PodState.READY:
            log.warning("a pod refuses connections and leaves the pool", pod=pod.name)
            connected.signature = None
            self._dispatcher.drain_pod(pod)
            self._start(connected, self._await_return(connected))
            connected.is_unreachable = True

    def stop(self, connected: ConnectedPod) -> None:
        """Ask a pod that serves no more nothing further."""
        connected.is_unreachable = False
        task = self._tasks.pop(connected, None)
        if task is not None:
            task.cancel()
        self._update(connected.pod.function)

    def reread(self, functions: Iterable[FunctionKey]) -> None:
        """Read the metadata of functions' pods again, because they refuse a request.

        A server may have loaded another model without a restart.
        """
        now_s = self._loop.time()
        for function in functions:
            if now_s >= self._reread_s.get(function, 0.0):
                self._reread_s[function] = now_s + _REREAD_S
                for connected in self._pods.all_ready(function):
                    if connected not in self._tasks:
                        self._start(connected, self._read_metadata(connected))

    def _start(self, connected: ConnectedPod, probe: Coroutine[None, None, None]) -> None:
        self.stop(connected)
        task = self._loop.create_task(probe)
        self._tasks[connected] = task
        task.add_done_callback(lambda task: self._ended(connected, task))

    def _ended(self, connected: ConnectedPod, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(connected) is task:
            del self._tasks[connected]

    async def _await_return(self, connected: ConnectedPod) -> None:
        backoff = Backoff(start_s=0.1, cap_s=1.0)
        while not await connected.server.ready(connected.model):  # noqa: ASYNC110 - elsewhere
            await asyncio.sleep(backoff.next_s())
        log.info("a pod takes connections again", pod=connected.pod.name)
        connected.is_unreachable = False
        self._dispatcher.pod_ready(connected.pod, 1000 * self._loop.time())
        self._on_report()
        await self._read_metadata(connected)

    async def _read_metadata(self, connected: ConnectedPod) -> None:
        backoff = Backoff(start_s=1.0)
        while True:
            try:
                metadata = await connected.server.metadata(connected.model)
            except ModelServerError as error:
                if error.status in CLIENT_ERRORS:  # the server has no metadata
                    return
                await asyncio.sleep(backoff.next_s())
            else:
                connected.signature = read_signature(metadata)
                self._update(connected.pod.function)
                return

    def _update(self, function: FunctionKey) -> None:
        ready = self._pods.all_ready(function)
        signature = ready[0].signature if ready else None
        for connected in ready:
            if connected.signature != signature:
                signature = None
        if self.signatures.get(function) == signature:
            return
        others = {key: value for key, value in self.signatures.items() if key != function}
        self.signatures = others if signature is None else {**others, function: signature}
