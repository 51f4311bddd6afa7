"""Pods of functions, and the clients of their model servers."""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping

from scheduler.dispatch.pods import FunctionKey, Pod, PodState, Run
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.model_server import ModelServer

ConnectServer = Callable[[ServerPod], ModelServer]


class ConnectedPod:
    """A pod of the dispatcher.

    Attributes:
        pod: as the dispatcher knows it.
        server: client of its model server.
        model: name of the model there.
        tasks: the batches that are on it.
    """

    __slots__ = ("model", "pod", "server", "tasks")

    def __init__(self, pod: Pod, server: ModelServer, model: str) -> None:
        self.pod = pod
        self.server = server
        self.model = model
        self.tasks: dict[Run, asyncio.Task[None]] = {}

    def batch_ended(self, run: Run) -> None:
        """Forget a batch; a draining pod's connection is closed after it."""
        self.tasks.pop(run, None)
        if self.pod.state is PodState.DRAINING:
            self.server.close_idle()


_NO_PODS: Mapping[str, ConnectedPod] = {}


class ConnectedPods:
    """The pods of all functions.

    Args:
        connect: opens the client of a pod's model server.
    """

    def __init__(self, connect: ConnectServer) -> None:
        self._connect = connect
        self._by_name: dict[str, ConnectedPod] = {}
        self._by_function: dict[FunctionKey, dict[str, ConnectedPod]] = {}

    def add(self, server_pod: ServerPod, pod: Pod) -> None:
        """Connect to a pod."""
        model = server_pod.server.model or server_pod.function[1]
        connected = ConnectedPod(pod, self._connect(server_pod), model)
        self._by_name[pod.name] = connected
        self._by_function.setdefault(pod.function, {})[pod.name] = connected

    def get(self, name: str) -> ConnectedPod | None:
        """Return a pod, or None if it is not known."""
        return self._by_name.get(name)

    def remove(self, name: str) -> ConnectedPod | None:
        """Forget a pod and return it; None if it is not known."""
        connected = self._by_name.pop(name, None)
        if connected is not None:
            del self._by_function[connected.pod.function][name]
        return connected

    def names(self) -> list[str]:
        """Return the names of all pods."""
        return list(self._by_name)

    def ready(self, function: FunctionKey) -> ConnectedPod | None:
        """Return a ready pod of a function, or None."""
        for connected in self._by_function.get(function, _NO_PODS).values():
            if connected.pod.state is PodState.READY:
                return connected
        return None

    def unserved(self, functions: Iterable[FunctionKey]) -> list[FunctionKey]:
        """Return the functions without a ready pod."""
        return sorted({function for function in functions if self.ready(function) is None})


def dispatched_pod(server_pod: ServerPod, now_ms: float, *, expected: Pod | None = None) -> Pod:
    """Return the dispatcher's pod for a discovered one.

    Args:
        server_pod: the discovered pod.
        now_ms: the clock.
        expected: the dispatcher's pod of this name, which starts. It is the same pod, unless the
            scheduler granted another share than was asked for.
    """
    share = server_pod.share
    if expected is not None and expected.share == share:
        expected.node, expected.gpu = server_pod.node, server_pod.gpu
        return expected
    start_ms = math.inf if expected is None else expected.ready_ms
    return Pod(
        server_pod.name,
        server_pod.function,
        share,
        node=server_pod.node,
        gpu=server_pod.gpu,
        slots=server_pod.server.slots,
        state=_state(server_pod),
        ready_ms=now_ms if server_pod.ready else start_ms,
    )


def _state(server_pod: ServerPod) -> PodState:
    if server_pod.draining:
        return PodState.DRAINING
    return PodState.READY if server_pod.ready else PodState.STARTING
