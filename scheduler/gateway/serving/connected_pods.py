"""Pods of functions, expected or connected, and the clients of their model servers."""

import asyncio
import math
from collections.abc import Callable, Mapping

from scheduler.dispatch.pods import FunctionKey, Pod, PodState, Run
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.model_server import ModelServer
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.model_signature import ModelSignature

ConnectServer = Callable[[ServerPod], ModelServer]


class ConnectedPod:
    """A pod of the dispatcher.

    Attributes:
        pod: pod as the dispatcher has it.
        server: client of the pod's model server.
        model: name of the model at the server.
        tasks: tasks of the batches that run on the pod.
        signature: inputs and outputs of the model; None if they are not known.
        is_unreachable: true from a refused connection until its server is back.
    """

    __slots__ = (
        "_address",
        "_answered",
        "is_unreachable",
        "model",
        "pod",
        "server",
        "signature",
        "tasks",
    )

    def __init__(self, pod: Pod, server: ModelServer, server_pod: ServerPod) -> None:
        host, port = server_pod.host, server_pod.server.port
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.pod = pod
        self.server = server
        self.model = server_pod.server.model
        self.tasks: dict[Run, asyncio.Task[None]] = {}
        self.signature: ModelSignature | None = None
        self.is_unreachable = False
        self._answered: set[frozenset[str]] = set()

    def without_address(self, error: Exception) -> str:
        """Return the text of an error of the pod's server as clients get it."""
        return str(error).replace(self._address, "the model server")

    def note_answer(self, request: InferRequest) -> None:
        """Note that the model needs no input but those of a request."""
        signature = self.signature
        if signature is not None and len(request.inputs) < len(signature.inputs):
            self._answered.add(frozenset([tensor.name for tensor in request.inputs]))

    def missing_inputs(self, request: InferRequest) -> list[str]:
        """Return the inputs that a request lacks, unless the model has answered without them.

        Metadata do not say which inputs are optional.
        """
        names = frozenset([tensor.name for tensor in request.inputs])
        if self.signature is None or names in self._answered:
            return []
        return [name for name in self.signature.inputs if name not in names]

    def batch_ended(self, run: Run) -> None:
        """Forget a batch; a draining pod's connection is closed after it."""
        self.tasks.pop(run, None)
        if self.pod.state is PodState.DRAINING:
            self.server.close_idle()


_NO_PODS: Mapping[str, ConnectedPod] = {}


class ConnectedPods:
    """The pods of all functions.

    A pod is expected from its creation until it has an address, and connected from then on.

    Args:
        connect: opens the client of a pod's model server.
    """

    def __init__(self, connect: ConnectServer) -> None:
        self._connect = connect
        self._by_name: dict[str, ConnectedPod] = {}
        self._by_function: dict[FunctionKey, dict[str, ConnectedPod]] = {}
        self._expected: dict[str, Pod] = {}

    def expect(self, pod: Pod) -> None:
        """Add a pod that has no address yet."""
        self._expected[pod.name] = pod

    def forget_expected(self, name: str) -> Pod | None:
        """Forget an expected pod and return it; None if it is not known, or connected."""
        return self._expected.pop(name, None)

    def add(self, server_pod: ServerPod, now_ms: float) -> tuple[Pod, Pod | None]:
        """Connect to a pod.

        Returns:
            The dispatcher's pod, and the one that was expected by its name, or None. They are the
            same, unless the pod is pooled, or the scheduler granted another share than was asked
            for.
        """
        expected = self.forget_expected(server_pod.name)
        pod = _dispatched_pod(server_pod, now_ms, expected)
        connected = ConnectedPod(pod, self._connect(server_pod), server_pod)
        self._by_name[pod.name] = connected
        self._by_function.setdefault(pod.function, {})[pod.name] = connected
        return pod, expected

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

    def all_ready(self, function: FunctionKey) -> list[ConnectedPod]:
        """Return the ready pods of a function."""
        pods = self._by_function.get(function, _NO_PODS).values()
        return [connected for connected in pods if connected.pod.state is PodState.READY]

    def unreachable(self, function: FunctionKey) -> list[str]:
        """Return the names, without namespace, of pods of a function that refuse connections."""
        pods = self._by_function.get(function, _NO_PODS).values()
        return [c.pod.name.partition("/")[2] for c in pods if c.is_unreachable]


def _dispatched_pod(server_pod: ServerPod, now_ms: float, expected: Pod | None) -> Pod:
    share = server_pod.share
    # A pooled pod joins the slice of its GPU when it is added.
    if expected is not None and expected.share == share and not server_pod.pooled:
        expected.node, expected.gpu = server_pod.node, server_pod.gpu
        expected.slots = server_pod.server.slots  # they may have changed since
        return expected
    start_ms = math.inf if expected is None else expected.ready_ms
    return Pod(
        server_pod.name,
        server_pod.function,
        share,
        node=server_pod.node,
        gpu=server_pod.gpu,
        slots=server_pod.server.slots,
        pooled=server_pod.pooled,
        state=_state(server_pod),
        ready_ms=now_ms if server_pod.ready else start_ms,
    )


def _state(server_pod: ServerPod) -> PodState:
    if server_pod.draining:
        return PodState.DRAINING
    return PodState.READY if server_pod.ready else PodState.STARTING
