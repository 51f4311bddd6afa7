"""The first batch of a pod: zeros of the metadata's shape, or a reason why there is none."""

import asyncio
from math import inf

import numpy as np
import pytest
from structlog.testing import capture_logs

from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.model_servers import model_server
from scheduler.gateway.scaling.warm_up import NoZerosError, warm_up, zeros
from scheduler.oip.batch import RowRange, join
from tests.oip import naive
from workbench.cluster.model_server import PlayedModelServer


def tensor(name="x", datatype="FP32", shape=(-1, 2)):
    """The metadata of one input."""
    return {"name": name, "datatype": datatype, "shape": list(shape)}


@pytest.mark.parametrize("datatype", ["FP32", "FP64", "INT64", "UINT8", "BOOL"])
def test_zeros_of_each_shape(datatype):
    """An open first dimension is the number of rows, and others are as the model says."""
    metadata = {"inputs": [tensor("x", datatype), tensor("z", "INT32", (-1, 3, 1))]}
    request = zeros(metadata, 4)
    message = join([RowRange(request, 0, 4)], binary=True)
    body = message.header + b"".join(message.buffers)
    _, inputs = naive.decode(body, str(message.header_length), "inputs")
    assert {name: array.shape for name, (_, array) in inputs.items()} == {
        "x": (4, 2),
        "z": (4, 3, 1),
    }
    assert not any(np.any(array) for _, array in inputs.values())


def test_a_fixed_first_dimension_stays():
    """A model without batches gets its one row."""
    assert zeros({"inputs": [tensor(shape=(1, 2))]}, 4).rows == 1


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "no inputs"),
        ({"inputs": [{"name": "x"}]}, "no name or shape"),
        ({"inputs": [tensor(datatype="BYTES")]}, "datatype 'BYTES'"),
        ({"inputs": [tensor(datatype="FP8")]}, "datatype 'FP8'"),
        ({"inputs": [tensor(shape=(-1, -1))]}, r"open shape \[-1, -1\]"),
        ({"inputs": [tensor(shape=())]}, "open shape"),
        ({"inputs": [tensor(shape=(-1, inf))]}, "no name or shape"),
        ({"inputs": [tensor(shape=(-1, 10**9))]}, "exceeds"),
        ({"inputs": [tensor(shape=(1, 2)), tensor("z")]}, "differ in their first dimension"),
    ],
)
def test_no_zeros(metadata, reason):
    """The reason is stated when the metadata leaves open what a batch is."""
    with pytest.raises(NoZerosError, match=reason):
        zeros(metadata, 4)


async def test_it_waits_until_the_model_is_ready():
    """A played model server that becomes ready later gets one batch, of all rows."""
    played = PlayedModelServer(ready=False)
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        played.ready = len(pauses) == 3

    async with played.serving():
        server = model_server("http-binary", "127.0.0.1", played.port)
        await warm_up(server, "m", 4, pod="n/p", sleep=sleep)
        await server.close()
    assert [run.rows for run in played.runs] == [4]
    assert len(pauses) == 3
    assert pauses[2] > pauses[0]


async def test_a_model_that_refuses_zeros_serves():
    """An error of the model itself does not fail the start; the log has it."""
    played = PlayedModelServer(fault="error")
    async with played.serving():
        server = model_server("http-binary", "127.0.0.1", played.port)
        with capture_logs() as logs:
            await warm_up(server, "m", 4, pod="n/p")
        await server.close()
    assert len(played.runs) == 1
    assert [entry["event"] for entry in logs] == ["warm-up batch refused"]


async def test_a_connection_that_breaks_is_tried_again():
    """A server that dies in its first batch is waited for."""

    class Dying:
        binary = True
        calls = 0

        async def ready(self, model):
            return True

        async def metadata(self, model):
            return {"inputs": [tensor()]}

        async def infer(self, model, ranges, **options):
            self.calls += 1
            if self.calls < 3:
                raise ModelServerError(502, "reset", retryable=True)
            return ()

    server = Dying()
    await warm_up(server, "m", 4, pod="n/p", sleep=lambda _: asyncio.sleep(0))
    assert server.calls == 3
