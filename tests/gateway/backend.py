"""Small backends: one batches requests for a model server, one leaves the answers to a test."""

import asyncio
import contextlib

from scheduler.gateway.calls import CallError, InferAnswer
from scheduler.gateway.model_server import ModelServerError
from scheduler.oip.batch import reunite, row_ranges, split
from scheduler.oip.errors import MessageError


class HeldBackend:
    """Calls wait until the test ends their futures.

    Attributes:
        calls: all calls that came, and their futures.
    """

    def __init__(self):
        self.calls = []

    def now_ms(self):
        return asyncio.get_running_loop().time() * 1000

    def check(self, namespace, workflow, stage, body_bytes):
        """Accept all calls."""

    def submit(self, call):
        future = asyncio.get_running_loop().create_future()
        self.calls.append((call, future))
        return future

    def ready(self, namespace=None, workflow=None, stage=None):
        return True

    def answer(self, index=0):
        """Answer a call with its own inputs."""
        call, future = self.calls[index]
        future.set_result(InferAnswer(call.request.inputs, 0.0, 0.0, 1, cold_start=True))


class BatchingBackend:
    """Batches of up to ``rows_max`` rows, ``slots`` at a time, first come first served.

    Attributes:
        calls: all calls that came.
        cancelled: calls whose client hung up.
        refusal: raised before a body is read.
        is_ready: the answer of the ready routes.
    """

    def __init__(self, server, *, rows_max=8, slots=2):
        self.calls, self.cancelled = [], []
        self.refusal = None
        self.is_ready = True
        self._server = server
        self._rows_max = rows_max
        self._slots = slots
        self._waiting = []
        self._tasks = set()

    def now_ms(self):
        return asyncio.get_running_loop().time() * 1000

    def check(self, namespace, workflow, stage, body_bytes):
        if workflow != "double":
            raise CallError(404, f"there is no workflow {workflow!r} in namespace {namespace}")
        if self.refusal is not None:
            raise self.refusal

    def submit(self, call):
        self.calls.append(call)
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(
            lambda future: self.cancelled.append(call) if future.cancelled() else None
        )
        request = call.request.in_form(binary=self._server.binary)
        ranges = row_ranges(request, self._rows_max)
        answers = [None] * len(ranges)
        for index, item in enumerate(ranges):
            self._waiting.append((item, call, future, answers, index))
        self._begin()
        return future

    def ready(self, namespace=None, workflow=None, stage=None):
        if workflow is not None:
            self.check(namespace, workflow, stage, 0)
        return self.is_ready

    async def metadata(self, namespace, workflow, stage):
        self.check(namespace, workflow, stage, 0)
        return await self._server.metadata(workflow)

    async def close(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self):
        while self._waiting and len(self._tasks) < self._slots:
            batch, rows = [], 0
            joinable = self._waiting[0][1].request.joinable
            for job in list(self._waiting):
                fits = rows + job[0].rows <= self._rows_max
                if fits and job[1].request.joinable == joinable:
                    batch.append(job)
                    rows += job[0].rows
                    self._waiting.remove(job)
            task = asyncio.create_task(self._run(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: self._begin())

    async def _run(self, batch):
        batch = [job for job in batch if not job[2].done()]
        if not batch:
            return
        ranges = [job[0] for job in batch]
        headers = batch[0][1].headers
        try:
            outputs = await self._server.infer("double", ranges, timeout_ms=5000, headers=headers)
            answers = split(ranges, outputs)
        except (ModelServerError, MessageError) as error:
            for job in batch:
                if not job[2].done():
                    job[2].set_exception(CallError(error.status, str(error)))
            return
        rows = sum(item.rows for item in ranges)
        for (_, _, future, parts, index), answer in zip(batch, answers, strict=True):
            parts[index] = answer
            if not future.done() and all(part is not None for part in parts):
                future.set_result(InferAnswer(reunite(parts), 1.0, 2.0, rows, cold_start=False))


@contextlib.asynccontextmanager
async def backend_of(server, **options):
    backend = BatchingBackend(server, **options)
    try:
        yield backend
    finally:
        await backend.close()
        await server.close()
