"""Edits of a FunctionServer: its pods stay in service, unless connections depend on the change."""

import asyncio

import numpy as np
import pytest

from scheduler.gateway.scaling.loop import WINDOW_MS
from tests.gateway.pool_bed import gateway
from tests.gateway.ready_pods import NAMESPACE
from tests.gateway.runtime_bed import expected, rows
from tests.virtual_loop import virtually


@pytest.mark.parametrize(
    "changed",
    [
        {"replicas": 3},
        {"minPods": 2},
        {"maxPods": 7},
        {"keepAliveS": 5.0},
        {"share": "pooled"},
        {"batching": "none"},
        {"model": "f"},
        {"template": {"spec": {"containers": [{"name": "c", "image": "another"}]}}},
    ],
    ids=lambda changed: next(iter(changed)),
)
@virtually
async def test_an_edit_that_no_connection_depends_on_interrupts_nothing(changed):
    """The batch in progress ends on its pod, and the pod needs no other first batch."""
    async with gateway() as bed:
        name = f"{NAMESPACE}/{await bed.first_pod()}"
        await asyncio.sleep(1)
        model = bed.models[name]
        model.gate.clear()
        call = asyncio.ensure_future(bed.outputs("w", x := rows(2)))
        await model.begun.wait()
        bed.set_server(**changed)
        assert bed.states() == ["ready"]
        model.gate.set()
        np.testing.assert_array_equal((await call)["y-f"], expected({"f": ()}, x)["y-f"])
        assert (model.batches, len(bed.warmed), bed.models[name]) == ([2], 1, model)


@pytest.mark.parametrize(
    "changed",
    [{"protocol": "http-json"}, {"port": 8001}, {"slots": 2}],
    ids=lambda changed: next(iter(changed)),
)
@virtually
async def test_an_edit_of_what_connections_depend_on_connects_again(changed):
    """The pod has a first batch over the new connection."""
    async with gateway() as bed:
        name = f"{NAMESPACE}/{await bed.first_pod()}"
        await asyncio.sleep(1)
        former = bed.models[name]
        bed.set_server(**changed)
        await asyncio.sleep(1)
        assert (bed.states(), len(bed.warmed), former.closed) == (["ready"], 2, True)
        assert bed.models[name] is not former


@virtually
async def test_an_edit_of_slots_reaches_a_pod_that_is_not_there_yet():
    """It was expected with the former number."""
    async with gateway() as bed:
        bed.scaler.wanted = 1
        await asyncio.sleep(1)
        bed.set_server(slots=2)
        await bed.first_pod()
        assert [pod.slots for pod in bed.runtime.dispatcher.pods] == [2]


@virtually
async def test_pods_of_a_template_that_a_selector_replaces_still_serve():
    """They belong to nobody then: the gateway neither warms nor ends them."""
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 8000}]}
    template = {"metadata": {"labels": {"app": "f"}}, "spec": {"containers": [container]}}
    async with gateway(template=template) as bed:
        name = f"{NAMESPACE}/{await bed.first_pod()}"
        bed.set_server(template=None, selector={"matchLabels": {"app": "f"}})
        bed.scaler.wanted = 0
        await asyncio.sleep(WINDOW_MS / 1000 + 1)
        await bed.outputs("w", rows(2), timeout_ms=1_000.0)
        assert (bed.models[name].batches, bed.pods.deleted) == ([2], [])
