"""Played model servers of the gateway's pods: their batches, and who sent them."""

import asyncio
import json
import struct
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.model_server import ModelServerError
from scheduler.oip.batch import RowRange, joined_inputs
from scheduler.oip.datatypes import DATATYPES
from scheduler.oip.tensor import Tensor, TensorPart
from tests.campaign.gateway_documents import latency_ms
from tests.campaign.simulated_server import SimulatedServer
from workbench.cluster.api_requests import PODS

LATENCY_S = 0.001
HANG_S = 90.0  # longer than the gateway waits for a batch
_TENSOR = {"datatype": "FP64", "shape": [-1, 1]}


@dataclass(slots=True, eq=False)
class Batch:
    """A batch in a model server.

    Attributes:
        sender: the process that sent it.
        end_s: end of its execution, whether the sender still waits or not.
        is_awaited: its sender waits for the answer.
        is_hanging: it exceeds its profile, which no sender has to expect.
    """

    sender: object
    end_s: float
    is_hanging: bool
    is_awaited: bool = True


class ModelServers:
    """The model servers of all pods.

    Attributes:
        faults: effects on the next batches.
        violations: batches of two processes on a pod, or more batches than it has slots.
        answered: number of batches by sender.
    """

    def __init__(self, server: SimulatedServer) -> None:
        self.faults: list[str] = []
        self.violations: list[str] = []
        self.answered: Counter[object] = Counter()
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._batches: defaultdict[str, list[Batch]] = defaultdict(list)  # by the pod's UID

    def is_running(self, pod: ServerPod) -> bool:
        namespace, _, name = pod.name.partition("/")
        raw = self._server.store.collection(PODS).objects.get((namespace, name))
        return (
            raw is not None
            and raw["metadata"]["uid"] == pod.uid
            and raw["status"].get("phase") == "Running"
        )

    def begin(self, sender: object, pod: ServerPod, rows: int) -> tuple[Batch, str]:
        """Begin a batch; return it and its fault."""
        now_s = self._loop.time()
        effect = self.faults.pop(0) if self.faults else ""
        number = sum(self.answered.values())
        ratio = 0.5 + crc32(f"{pod.name} {number}".encode()) % 500 / 1000
        batch = min((size for size in (1, 2, 4) if size >= rows), default=4)
        duration_s = ratio * latency_ms(batch, pod.gpu_percent) / 1000
        if effect == "hang":
            duration_s = HANG_S
        current = [b for b in self._batches[pod.uid] if b.end_s > now_s and not b.is_hanging]
        begun = Batch(sender, now_s + duration_s, effect == "hang")
        self._batches[pod.uid] = [*current, begun]
        if any(b.sender is not sender for b in current):
            self.violations.append(f"at {now_s:.3f} s: two dispatchers have batches on {pod.name}")
        own = sum(b.sender is sender and b.is_awaited for b in current)
        if own >= pod.server.slots:
            self.violations.append(f"at {now_s:.3f} s: {own + 1} batches on {pod.name}")
        return begun, effect


class ModelClient:
    """Connection of one process to the model server of one pod, as `ModelServer`."""

    binary = True

    def __init__(self, servers: ModelServers, sender: object, pod: ServerPod) -> None:
        self._servers = servers
        self._sender = sender
        self._pod = pod
        self._loop = asyncio.get_running_loop()

    async def infer(
        self,
        model: str,
        ranges: Sequence[RowRange],
        *,
        timeout_ms: float | None,
        headers: object = (),
    ) -> tuple[Tensor, ...]:
        del headers
        await asyncio.sleep(LATENCY_S)
        self._check_running()
        inputs = joined_inputs(ranges)[0]
        batch, effect = self._servers.begin(self._sender, self._pod, inputs.rows)
        wait_s = batch.end_s - self._loop.time()
        try:
            if timeout_ms is not None and 1000 * wait_s > timeout_ms:
                await asyncio.sleep(timeout_ms / 1000)
                raise ModelServerError(504, f"{model}: no answer in time")
            await asyncio.sleep(wait_s)
        finally:
            batch.is_awaited = False
        if effect == "are reset":
            raise ModelServerError(502, "connection reset", retryable=True)
        self._check_running()
        if effect == "fail":
            raise ModelServerError(500, "drawn")
        self._servers.answered[self._sender] += 1
        return (output_tensor([2.0 * x + 1.0 for x in values_of(inputs)]),)

    def _check_running(self) -> None:
        if not self._servers.is_running(self._pod):
            raise ModelServerError(503, "connection refused", retryable=True)

    async def ready(self, model: str) -> bool:
        del model
        await asyncio.sleep(LATENCY_S)
        return self._servers.is_running(self._pod)

    async def metadata(self, model: str) -> dict[str, Any]:
        await asyncio.sleep(LATENCY_S)
        self._check_running()
        return {
            "name": model,
            "inputs": [{"name": "x", **_TENSOR}],
            "outputs": [{"name": "y", **_TENSOR}],
        }

    def close_idle(self) -> None:
        """Connections are not simulated."""

    async def close(self) -> None:
        """Connections are not simulated."""


def values_of(tensor: Tensor) -> list[float]:
    """Return the values of a tensor with one number in each row."""
    content = b"".join(bytes(part.content) for part in tensor.parts)
    return list(struct.unpack(f"={tensor.rows}d", content))


def output_tensor(values: Sequence[float]) -> Tensor:
    """Return the output of a model server."""
    content = memoryview(struct.pack(f"={len(values)}d", *values))
    part = TensorPart(len(values), content, 8)
    return Tensor("y", DATATYPES["FP64"], (len(values), 1), (part,), {})


def request_body(values: Sequence[float]) -> bytes:
    """Return the body of a client's request."""
    tensor = {"name": "x", "datatype": "FP64", "shape": [len(values), 1], "data": list(values)}
    return json.dumps({"inputs": [tensor]}).encode()
