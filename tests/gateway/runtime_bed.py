"""A runtime over model servers in memory, and the same workflows computed directly."""

import asyncio
from contextlib import asynccontextmanager
from graphlib import TopologicalSorter

import numpy as np

from scheduler.gateway.calls import CallError, InferCall
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.model_servers import model_server
from scheduler.gateway.scaling.slice_fence import SliceFence
from scheduler.gateway.serving.runtime import Runtime
from scheduler.model.documents import Workflow
from scheduler.oip.batch import join
from scheduler.oip.infer_request import parse_request
from scheduler.oip.infer_response import parse_response, write_response
from scheduler.search.rules import Rules
from tests.gateway.ready_pods import MODEL, NAMESPACE, ready_pod, server
from tests.oip import naive
from workbench.profiles import builders as documents

BATCHES = (1, 2, 4, 8)


def profile(function, latency_ms=1.0):
    """A function whose time does not depend on its batch."""
    rows = [(b, 1, p, latency_ms) for b in BATCHES for p in (50, 100)]
    return documents.profile(function, {MODEL: rows}, base_mib=100, memory_mib=0)


def workflow(name, after, slo_ms=60_000.0, on_late="cheapest"):
    """A workflow; ``after`` has the stages before each stage, which is named as its function."""
    stages = [
        {
            "name": stage,
            "function": stage,
            "after": list(before),
            "inputs": [{"name": f"x-{b}", "from": f"{b}.y-{b}"} for b in before],
        }
        for stage, before in after.items()
    ]
    spec = {"slo": {"latencyMs": slo_ms}, "onLate": on_late, "stages": stages}
    return Workflow.model_validate(
        {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
    )


def computed(function, inputs):
    """Compute a function's output, row by row."""
    return 2 * sum(inputs) + len(function) + ord(function[0])


def expected(after, x):
    """Return the outputs of the last stages by name, computed stage by stage."""
    outputs = {}
    for stage in TopologicalSorter(after).static_order():
        outputs[stage] = computed(stage, [outputs[b] for b in after[stage]] or [x])
    inner = {before for stage in after for before in after[stage]}
    return {f"y-{stage}": outputs[stage] for stage in after if stage not in inner}


class Model:
    """A model server of one function.

    Attributes:
        batches: rows of each batch that it got.
        headers: headers of each batch.
        was_binary: whether each batch came as binary data.
        faults: errors for the next batches; None: an answer.
        output: name of its output.
        bad_value: an input that makes it answer status `bad_status`.
        is_ready: answer to whether the model is ready; ready_reads: number of these answers.
        described: metadata, or an error; None: one input and one output for the bed's calls.
        metadata_reads: number of times that its metadata were read.
        gate: batches wait for it.
        begun: set by a batch that waits.
        idle_closed_after: number of batches before each time that idle connections were closed.
        closed: it was closed.
    """

    def __init__(self, function, binary=True):
        self.function = function
        self.binary = binary
        self.batches, self.headers, self.was_binary, self.faults = [], [], [], []
        self.idle_closed_after = []
        self.output = f"y-{function}"
        self.bad_value, self.bad_status = None, 500
        self.is_ready, self.ready_reads = True, 0
        self.described, self.metadata_reads = None, 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = asyncio.Event()
        self.closed = False

    async def infer(self, model, ranges, *, timeout_ms, headers=()):
        assert model == self.function
        assert timeout_ms > 0
        message = join(ranges, binary=self.binary)
        body = message.header + b"".join(message.buffers)
        length = message.header_length
        _, tensors = naive.decode(body, None if length is None else str(length), "inputs")
        inputs = [array for _, array in tensors.values()]
        rows = len(inputs[0])
        self.batches.append(rows)
        self.headers.append(headers)
        self.was_binary.append(length is not None)
        self.begun.set()
        await self.gate.wait()
        await asyncio.sleep(0)
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        if self.bad_value is not None and any((array == self.bad_value).any() for array in inputs):
            raise ModelServerError(self.bad_status, "the model cannot stand this value")
        y = [(self.output, "FP64", computed(self.function, inputs))]
        binary = {self.output} if self.binary else frozenset()
        answer, answer_length = naive.encode({"outputs": y}, binary=binary)
        return parse_response(answer, answer_length, rows=rows)

    async def ready(self, model):
        self.ready_reads += 1
        return self.is_ready

    async def metadata(self, model):
        self.metadata_reads += 1
        if isinstance(self.described, Exception):
            raise self.described
        tensor = {"datatype": "FP64", "shape": [-1, 1]}
        return self.described or {
            "name": model,
            "inputs": [{"name": "x", **tensor}],
            "outputs": [{"name": self.output, **tensor}],
        }

    def close_idle(self):
        self.idle_closed_after.append(len(self.batches))

    async def close(self):
        self.closed = True


class Records:
    """Reports of the runtime."""

    def __init__(self):
        self.calls, self.refused, self.batches = [], [], []
        self.late = []
        self.cold_starts = 0

    def call_ended(self, workflow, result, duration_s, *, cold_start=False):
        assert (duration_s is None) == (result == "dropped")
        self.cold_starts += cold_start
        self.calls.append((workflow[1], result))

    def late_call_traced(self, workflow, duration_s, *, request_id, trace_id):
        assert self.calls[-1] == (workflow[1], "miss")
        self.late.append((request_id, trace_id))

    def call_refused(self, workflow, status):
        self.refused.append(status)

    def batch_ended(self, batch):
        self.batches.append(batch)


class Bed:
    """A runtime, its pods' models, and a client; `guard` wraps what opens a pod's client."""

    def __init__(self, rows_max=10_000, guard=lambda connect: connect):
        self.records = Records()
        self.models = {}
        self.fence = SliceFence(self._connect, asyncio.get_running_loop().time)
        connect = guard(self.fence.connect)
        self.runtime = Runtime(Rules(), self.records, connect, rows_max=rows_max)

    def _connect(self, pod):
        model = Model(pod.function[1], binary=pod.server.protocol != "http-json")
        self.models[pod.name] = model
        return model

    def serve(self, name, after, *, pods=1, protocol="http-binary", latency_ms=1.0, **fields):
        """Add a workflow, and pods of each of its functions."""
        for function in after:
            self.runtime.set_profile(profile(function, latency_ms))
        self.runtime.set_workflow(workflow(name, after, **fields))
        for function in after:
            self.runtime.set_server(server(function, protocol), profile(function, latency_ms))
            for number in range(pods):
                self.add_pod(function, number, protocol)

    def add_pod(self, function, number=0, protocol="http-binary", **changed):
        """Add a ready pod."""
        self.runtime.add_pod(ready_pod(number, server(function, protocol), **changed))

    def model(self, function, number=0):
        """Return the model server of a pod."""
        return self.models[f"{NAMESPACE}/{function}-{number}"]

    def call(
        self,
        name,
        x=None,
        *,
        inputs=None,
        stage=None,
        timeout_ms=None,
        outputs=(),
        headers=(),
        age_ms=0.0,
        client_id=None,
    ):
        """Start a call with rows of FP64, or these inputs; return its future."""
        inputs = inputs or [("x", "FP64", x)]
        fields = {"outputs": [{"name": output} for output in outputs]} if outputs else {}
        if client_id is not None:
            fields["id"] = client_id
        binary = {tensor[0] for tensor in inputs}
        body, length = naive.encode({"inputs": inputs}, binary=binary, **fields)
        call = InferCall(
            namespace=NAMESPACE,
            workflow=name,
            stage=stage,
            request=parse_request(body, length),
            arrival_ms=self.runtime.now_ms() - age_ms,
            timeout_ms=timeout_ms,
            headers=headers,
        )
        return self.runtime.submit(call)

    async def busy(self, name, function="a"):
        """Return the model of a function's pod, which holds a full batch, and the call with it."""
        model = self.model(function)
        model.gate.clear()
        call = self.call(name, rows(BATCHES[-1], 1))
        await model.begun.wait()
        return model, call

    async def outputs(self, name, x, **options):
        """Call, and return the outputs as arrays by name."""
        return arrays((await self.call(name, x, **options)).outputs)

    def refusal(self, name, stage=None):
        """Return the error of the check before a call's body is read; None: it may come."""
        try:
            self.runtime.check(NAMESPACE, name, stage, 100)
        except CallError as error:
            return error
        return None


class ProcessBed:
    """A runtime with the workflow "vision" of one function, whose pods are processes."""

    def __init__(self, function):
        self.records = Records()
        self.runtime = Runtime(Rules(), self.records, _client, rows_max=10_000)
        self.runtime.set_profile(profile(function))
        self.runtime.set_workflow(workflow("vision", {function: ()}))
        self._function = function

    def add_pod(self, protocol, port):
        """Add a ready pod whose model server listens on a port of the loopback; return its name."""
        document = server(self._function, protocol, port=port)
        self.runtime.set_server(document, profile(self._function))
        pod = ready_pod(port, document)
        self.runtime.add_pod(pod)
        return pod.name


def _client(pod):
    return model_server(pod.server.protocol, pod.host, pod.server.port)


@asynccontextmanager
async def bed(**options):
    """A bed that is closed at the end."""
    running = Bed(**options)
    try:
        yield running
    finally:
        await running.runtime.close()
        assert all(model.closed for model in running.models.values())


def arrays(outputs):
    """Return tensors as arrays by name."""
    body, length = naive.encode({"inputs": [("x", "FP64", np.zeros((1, 1)))]}, binary={"x"})
    request = parse_request(body, length)._replace(binary_output=True)
    message = write_response("w", request, outputs)
    content = message.header + b"".join(message.buffers)
    _, tensors = naive.decode(content, str(message.header_length), "outputs")
    return {name: array for name, (_, array) in tensors.items()}


def rows(count, seed=0):
    """Return rows of one number, each different from all others."""
    return np.random.default_rng(seed).permutation(10_000)[:count].reshape(count, 1).astype(float)
