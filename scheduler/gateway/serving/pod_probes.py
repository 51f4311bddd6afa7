"""Questions to the model servers of pods: what their models take, and whether they are back."""

import asyncio
from collections.abc import Callable

from scheduler.cluster.backoff import Backoff
from scheduler.dispatch.pods import FunctionKey
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.serving.connected_pods import ConnectedPod, ConnectedPods
from scheduler.oip.model_signature import ModelSignature, read_signature

_CLIENT_ERRORS = range(400, 500)
_REREAD_S = 1.0  # between two refusals that have the metadata of a function read again


class PodProbes:
    """Reads the metadata of ready pods, and waits for those that refused connections.

    Attributes:
        signatures: signature of each function whose ready pods all have it. During a rollout, one
            may take what another one does not.

    Args:
        pods: clients of the pods' model servers.
        on_return: callback with a pod that takes connections again.
    """

    def __init__(self, pods: ConnectedPods, on_return: Callable[[ConnectedPod], None]) -> None:
        self.signatures: dict[FunctionKey, ModelSignature] = {}
        self._pods = pods
        self._on_return = on_return
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[ConnectedPod, asyncio.Task[None]] = {}
        self._reread_s: dict[FunctionKey, float] = {}

    def start(self, connected: ConnectedPod, *, is_refusing: bool = False) -> None:
        """Read the metadata of a pod that serves from now on.

        Args:
            connected: pod to ask.
            is_refusing: true to wait first until its server takes connections and the model is
                ready.
        """
        connected.signature = None
        self._start(connected, is_refusing=is_refusing)

    def stop(self, connected: ConnectedPod) -> None:
        """Ask a pod that serves no more nothing further."""
        task = self._tasks.pop(connected, None)
        if task is not None:
            task.cancel()
        self._update(connected.pod.function)

    def reread(self, function: FunctionKey) -> None:
        """Read the metadata of a function's pods again, because they refuse a request.

        A server may have loaded another model without a restart.
        """
        now_s = self._loop.time()
        if now_s < self._reread_s.get(function, 0.0):
            return
        self._reread_s[function] = now_s + _REREAD_S
        for connected in self._pods.all_ready(function):
            if connected not in self._tasks:
                self._start(connected, is_refusing=False)

    def _start(self, connected: ConnectedPod, *, is_refusing: bool) -> None:
        self.stop(connected)
        task = self._loop.create_task(self._probe(connected, is_refusing=is_refusing))
        self._tasks[connected] = task
        task.add_done_callback(lambda task: self._ended(connected, task))

    def _ended(self, connected: ConnectedPod, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(connected) is task:
            del self._tasks[connected]

    async def _probe(self, connected: ConnectedPod, *, is_refusing: bool) -> None:
        server, model = connected.server, connected.model
        backoff = Backoff(start_s=0.1, cap_s=1.0)
        if is_refusing:
            while not await server.ready(model):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(backoff.next_s())
            self._on_return(connected)
        backoff = Backoff(start_s=1.0)
        while True:
            try:
                connected.signature = read_signature(await server.metadata(model))
            except ModelServerError as error:
                if error.status in _CLIENT_ERRORS:  # the server has no metadata
                    return
                await asyncio.sleep(backoff.next_s())
            else:
                self._update(connected.pod.function)
                return

    def _update(self, function: FunctionKey) -> None:
        ready = self._pods.all_ready(function)
        signature = ready[0].signature if ready else None
        for connected in ready:
            if connected.signature != signature:
                signature = None
        if signature is None:
            self.signatures.pop(function, None)
        else:
            self.signatures[function] = signature
