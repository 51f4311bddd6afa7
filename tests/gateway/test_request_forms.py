"""Requests compared with the metadata of the models that would answer them."""

import asyncio
from math import inf

import numpy as np
import pytest

from scheduler.gateway.model_server import ModelServerError
from scheduler.oip.errors import MessageError
from tests.gateway.harness import eventually
from tests.gateway.runtime_bed import bed, rows

CHAIN = {"a": (), "b": ("a",)}
IMAGE = {"name": "x", "datatype": "FP64", "shape": [-1, 16]}


def described(running, function, number=0, **metadata):
    """Set the metadata of a pod's model before they are read."""
    running.model(function, number).described = {"inputs": [], "outputs": []} | metadata


async def read(running, *functions):
    """Wait until the metadata of functions' pods are read."""
    models = [running.model(function) for function in functions]
    await eventually(lambda: all(model.metadata_reads for model in models))


async def refusal(running, *arguments, **options):
    """Return the text with which a call is refused before the queue."""
    batches = [len(model.batches) for model in running.models.values()]
    with pytest.raises(MessageError) as raised:
        await running.call(*arguments, **options)
    assert raised.value.status == 400
    assert [len(model.batches) for model in running.models.values()] == batches
    return str(raised.value)


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ([("x", "FP64", np.zeros((1, 5)))], (), "input 'x' has shape [1,5]; a takes [-1,16]"),
        (
            [("x", "FP64", np.zeros((2, 4, 4)))],
            (),
            "input 'x' has shape [2,4,4]; a takes [-1,16]",
        ),
        (
            [("x", "FP32", np.zeros((1, 16), np.float32))],
            (),
            "input 'x' has datatype FP32; a takes FP64",
        ),
        ([("z", "FP64", np.zeros((1, 16)))], (), "there is no input 'z'; a takes 'x'"),
        ([("x", "FP64", np.zeros((1, 16)))], ["z"], "there is no output 'z'; a has 'y-a'"),
    ],
)
async def test_what_no_model_takes_is_refused(inputs, outputs, text):
    """The client gets the reason, and no model server a batch; the SLO does not count the call."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        described(running, "a", inputs=[IMAGE], outputs=[{"name": "y-a"}])
        await read(running, "a")
        assert await refusal(running, "w", inputs=inputs, outputs=outputs) == text
        assert (running.records.calls, running.records.refused) == ([], [400])


async def test_a_workflow_takes_what_its_entry_stages_take():
    """Several entry stages get the same inputs; outputs are those of the last stages."""
    async with bed() as running:
        running.serve("w", {"a": (), "b": (), "c": ("a", "b")})
        described(running, "a", inputs=[IMAGE])
        described(running, "b", inputs=[IMAGE | {"name": "z", "shape": [-1, 1]}])
        described(running, "c", outputs=[{"name": "y-c"}])
        await read(running, "a", "b", "c")
        x, z = ("x", "FP64", np.zeros((1, 16))), ("z", "FP64", np.zeros((1, 2)))
        text = "input 'z' has shape [1,2]; b takes [-1,1]"
        assert await refusal(running, "w", inputs=[x, z]) == text
        text = "there is no input 'u'; a takes 'x', b takes 'z'"
        assert await refusal(running, "w", inputs=[x, ("u", "FP64", np.zeros((1, 1)))]) == text
        text = "there is no output 'y-a'; c has 'y-c'"
        assert await refusal(running, "w", inputs=[x], outputs=["y-a"]) == text
        text = "input 'x' has shape [1,5]; a takes [-1,16]"
        assert await refusal(running, "w", np.zeros((1, 5)), stage="a") == text


@pytest.mark.parametrize(
    "shape", [[-1, 1], [4, 1], [1], [-1, -1], None, "4", [-1, 1, 1], [-1, None]]
)
async def test_shapes_that_one_number_a_row_fits(shape):
    """Metadata may fix the rows, or leave them out; those that cannot be read refuse nothing."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        described(running, "a", inputs=[IMAGE | {"shape": shape}])
        await read(running, "a")
        await running.call("w", rows(3))
        assert running.records.calls == [("w", "hit")]


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"inputs": []},
        {"inputs": None, "outputs": 5},
        {"inputs": [{"datatype": "FP64"}], "outputs": [5]},
        {"inputs": [{"name": "x", "datatype": "OF_ITS_OWN", "shape": [-1, 1]}]},
        {"inputs": [{"name": "x", "datatype": "FP64", "shape": [-1, inf]}]},
    ],
)
async def test_metadata_that_say_nothing_refuse_nothing(metadata):
    """A server that describes a part of its model, or wrongly, gets the requests."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        running.model("a").described = metadata
        await read(running, "a")
        await running.call("w", rows(1), outputs=["y-a"])


async def test_without_metadata_requests_go_on():
    """A model server need not have metadata, and is asked again only if it may answer later."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        running.model("a").described = ModelServerError(404, "no such path")
        await read(running, "a")
        await running.call("w", rows(1), outputs=["y-a"])


async def test_pods_that_differ_refuse_nothing():
    """During a rollout a pod may take what another one does not."""
    async with bed() as running:
        running.serve("w", {"a": ()}, pods=2)
        described(running, "a", inputs=[IMAGE])
        described(running, "a", 1, inputs=[IMAGE | {"shape": [-1, 1]}])
        await eventually(lambda: running.model("a", 1).metadata_reads)
        await running.call("w", rows(1))
        running.runtime.remove_pod("default/a-1")
        assert "a takes [-1,16]" in await refusal(running, "w", rows(1))
        running.add_pod("a", 1)
        await running.call("w", rows(1))  # nothing is known of this pod yet


async def test_a_refusal_reads_the_metadata_again():
    """A server that loads another model without a restart is not refused for long."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        described(running, "a", inputs=[IMAGE])
        await read(running, "a")
        described(running, "a", inputs=[IMAGE | {"shape": [-1, 1]}])
        await refusal(running, "w", rows(1))
        async with asyncio.timeout(60):
            while True:
                try:
                    await running.call("w", rows(1))
                except MessageError:
                    await asyncio.sleep(0)
                else:
                    break
        assert running.model("a").metadata_reads == 2
