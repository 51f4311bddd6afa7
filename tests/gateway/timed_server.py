"""Model servers whose batches take a time of the test's, and calls of one row, without sockets."""

import asyncio

import numpy as np

from scheduler.gateway.calls import InferCall
from scheduler.oip.infer_request import parse_request
from scheduler.oip.infer_response import parse_response
from tests.oip import naive

_X = [("x", "FP32", np.zeros((1, 1), np.float32))]
_REQUEST = parse_request(*naive.encode({"inputs": _X}, binary={"x"}))


def one_row_call(workflow, arrival_ms, headers=()):
    """Return a call of a workflow, by namespace and name."""
    return InferCall(
        namespace=workflow[0],
        workflow=workflow[1],
        stage=None,
        request=_REQUEST,
        arrival_ms=arrival_ms,
        timeout_ms=None,
        headers=headers,
    )


class TimedServer:
    """A model server that takes `run_ms` of its number of rows for a batch."""

    binary = True

    def __init__(self, run_ms):
        self._run_ms = run_ms

    async def ready(self, model):
        await asyncio.sleep(0.001)
        return True

    async def metadata(self, model):
        tensor = {"datatype": "FP32", "shape": [-1, 1]}
        return {
            "name": model,
            "inputs": [{"name": "x", **tensor}],
            "outputs": [{"name": f"y-{model}", **tensor}],
        }

    async def infer(self, model, ranges, *, timeout_ms, headers=()):
        rows = sum(part.rows for part in ranges)
        await asyncio.sleep(self._run_ms(rows) / 1000)
        outputs = [(f"y-{model}", "FP32", np.zeros((rows, 1), np.float32))]
        body, length = naive.encode({"outputs": outputs}, binary={f"y-{model}"})
        return parse_response(body, length, rows=rows)

    def close_idle(self):
        pass

    async def close(self):
        pass
