"""Pods of templates: created once, warmed, ended after their last batch, and paused on failure."""

import asyncio
import json

import numpy as np
import pytest

from scheduler.cluster.errors import ApiTimeoutError
from scheduler.dispatch.pods import Share
from scheduler.gateway.scaling.loop import WINDOW_MS
from scheduler.gateway.scaling.pod_limits import SEEN_MS
from scheduler.gateway.scaling.pod_pools import CREATIONS_MAX
from scheduler.gateway.scaling.pool_pod import warm_up_row
from tests.gateway.pool_bed import (
    LARGE,
    ROOM_S,
    SMALL,
    Pods,
    gateway,
)
from tests.gateway.ready_pods import MODEL, NAMESPACE
from tests.gateway.runtime_bed import expected, rows
from tests.virtual_loop import virtually
from workbench.profiles import builders as documents

AFTER = {"f": ()}
WINDOW_S = WINDOW_MS / 1000


@virtually
async def test_a_call_starts_a_pod_and_waits_for_it():
    """Without a pod a call waits; the pod gets a batch of zeros, and then the call."""
    async with gateway() as bed:
        bed.scaler.wanted = 1
        assert bed.refusal("w") is None
        assert bed.runtime.ready(NAMESPACE, "w")
        call = asyncio.ensure_future(bed.outputs("w", x := rows(2)))
        await asyncio.sleep(1)
        [name] = bed.pods.created
        assert bed.states() == ["starting"]
        bed.pods.bind(name)
        outputs = await call
        np.testing.assert_array_equal(outputs["y-f"], expected(AFTER, x)["y-f"])
        assert bed.warmed == [(f"{NAMESPACE}/{name}", 8)]
        assert bed.records.cold_starts == 1
        assert bed.states() == ["ready"]


@pytest.mark.parametrize(("cold_start_ms", "rows"), [(0.0, 8), (80.0, 4), (1.0, 1), (400.0, 8)])
def test_the_first_batch_is_short_beside_the_cold_start(cold_start_ms, rows):
    """It has the most rows that run in a quarter of the cold start, or those of the smallest."""
    points = [(b, 1, 50, 5.0 * b) for b in (1, 2, 4, 8)]
    known = documents.profile(
        "f", {MODEL: points}, cold_start_ms=cold_start_ms, base_mib=1, memory_mib=0
    )
    assert warm_up_row(known, Share(MODEL, 1, 50, 1)).batch == rows


@virtually
async def test_the_pod_has_the_template_and_an_exact_grant():
    """The template stays as it is; labels, owner, grant and scheduler are added."""
    async with gateway() as bed:
        bed.scaler.wanted, bed.scaler.share = 1, SMALL
        await asyncio.sleep(1)
        [raw] = bed.pods.objects.values()
        metadata = raw["metadata"]
        assert metadata["name"].startswith("s-")
        assert metadata["labels"] == {
            "app": "f",
            "esg-scheduler.io/function": "f",
            "esg-scheduler.io/gateway-pool": "s",
        }
        annotations = metadata["annotations"]
        assert annotations.pop("note") == "1"
        assert {key: json.loads(text) for key, text in annotations.items()} == {
            "esg-scheduler.io/configuration": {"batch": 8, "cpu": 1, "gpuPercent": 50}
        }
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "esg-scheduler.io/v1alpha1",
                "kind": "FunctionServer",
                "name": "s",
                "uid": "server-uid",
                "controller": True,
            }
        ]
        assert raw["spec"] == {
            "containers": [{"name": "c", "image": "i"}],
            "priorityClassName": "low",
            "schedulerName": "esg-scheduler",
        }


@virtually
async def test_a_pod_that_is_not_reported_yet_counts():
    """While the watch is silent, no second pod is created for the same demand."""
    async with gateway() as bed:
        bed.pods.is_silent = True
        bed.scaler.wanted = 3
        await asyncio.sleep(SEEN_MS / 1000 - 2)
        assert len(bed.pods.created) == 3
        bed.pods.relist()
        await asyncio.sleep(ROOM_S - 2)
        assert len(bed.pods.created) == 3 == len(bed.pods.objects)


@virtually
async def test_a_restarted_gateway_adopts_all_pods():
    """Pods with and without a node count from the first list on, and none is created again."""
    pods = Pods()
    async with gateway(pods) as bed:
        bed.scaler.wanted = 3
        await asyncio.sleep(1)
        served, bound, _ = pods.created
        pods.bind(served)
        pods.bind(bound, ready=False)
        await asyncio.sleep(2)
        assert bed.states() == ["ready", "starting", "starting"]
    async with gateway(pods) as bed:
        bed.scaler.wanted = 3
        assert bed.states() == ["starting"] * 3
        await asyncio.sleep(5)
        assert bed.states() == ["ready", "starting", "starting"]
        assert len(pods.created) == 3
        assert {pod.share for pod in bed.runtime.dispatcher.pods} == {LARGE}


@virtually
async def test_nothing_is_decided_before_the_first_list():
    """Pods that exist are known before the first decision."""
    async with gateway() as bed:
        bed.is_synced = False
        bed.scaler.wanted = 1
        await asyncio.sleep(5)
        assert bed.pods.created == []
        bed.is_synced = True
        await asyncio.sleep(1.5)
        assert len(bed.pods.created) == 1


@virtually
async def test_a_gateway_that_shuts_down_decides_nothing():
    """The next process does."""
    async with gateway() as bed:
        await bed.runtime.drain(1.0)
        bed.scaler.wanted = 1
        await asyncio.sleep(5)
        assert bed.pods.created == []


@virtually
async def test_a_restarted_gateway_ends_no_pod_at_once():
    """It knows no load yet, so pods stay until one window is full."""
    pods = Pods()
    async with gateway(pods) as bed:
        await bed.first_pod()
        await asyncio.sleep(1)
    async with gateway(pods):
        await asyncio.sleep(WINDOW_S - 2)
        assert pods.deleted == []
        await asyncio.sleep(4)
        assert pods.deleted == pods.created


@virtually
async def test_a_pod_that_this_process_has_created_ends_when_it_is_not_needed():
    """Its load was seen: nothing has to be awaited."""
    async with gateway() as bed:
        await bed.first_pod()
        await asyncio.sleep(1)
        bed.scaler.wanted = 0
        await asyncio.sleep(2)
        assert bed.pods.deleted == bed.pods.created


@virtually
async def test_pods_of_another_owner_are_left_alone():
    """A pod with the label but another controller is neither used nor ended."""
    pods = Pods()
    async with gateway(pods) as bed:
        await bed.first_pod()
        await asyncio.sleep(1)
    async with gateway(pods, uid="of a new server") as bed:
        await asyncio.sleep(5)
        assert bed.states() == []
        assert pods.deleted == []


@virtually
async def test_a_pod_is_deleted_after_its_last_batch():
    """A pod that is ended takes no further call; it is deleted when its batch is answered."""
    async with gateway() as bed:
        name = await bed.first_pod()
        await asyncio.sleep(WINDOW_S)
        model = bed.models[f"{NAMESPACE}/{name}"]
        model.gate.clear()
        first = bed.call("w", rows(1))
        await model.begun.wait()
        bed.scaler.wanted = 0
        await asyncio.sleep(5)
        later = bed.call("w", rows(1, 1))
        await asyncio.sleep(5)
        assert bed.pods.deleted == []
        model.gate.set()
        await first
        await asyncio.sleep(2)
        assert bed.pods.deleted == [name]
        assert not later.done()
        bed.pods.remove(name)
        assert bed.states() == []
        later.cancel()


@virtually
async def test_a_deletion_is_repeated():
    """A pod that cannot be deleted is not forgotten."""
    async with gateway() as bed:
        await bed.first_pod()
        await asyncio.sleep(WINDOW_S)
        delete, failures = bed.pods.delete, iter(range(3))

        async def failing(*arguments, **options):
            if next(failures, None) is not None:
                raise ApiTimeoutError("no answer", sent=True)
            await delete(*arguments, **options)

        bed.pods.delete = failing
        bed.scaler.wanted = 0
        await asyncio.sleep(10)
        assert bed.pods.deleted == bed.pods.created


@virtually
async def test_never_more_pods_than_the_maximum():
    """MaxPods holds whatever the scaler wants; pods that end do not count."""
    async with gateway(maxPods=2) as bed:
        bed.scaler.wanted = 5
        await asyncio.sleep(10)
        assert len(bed.pods.created) == 2


@virtually
async def test_creations_are_bounded():
    """No more than a fixed number of pods is created at a time."""
    async with gateway(maxPods=100) as bed:
        running, highest = 0, 0
        create = bed.pods.create

        async def counting(*arguments):
            nonlocal running, highest
            running += 1
            highest = max(highest, running)
            await create(*arguments)
            running -= 1

        bed.pods.create = counting
        bed.scaler.wanted = 60
        await asyncio.sleep(10)
        assert len(bed.pods.created) == 60
        assert highest == CREATIONS_MAX


@virtually
async def test_creations_that_end_before_their_first_request_do_not_count():
    """A server that is lost as soon as pods are due, and comes back, gets its pods."""
    async with gateway(maxPods=100) as bed:
        bed.scaler.wanted = CREATIONS_MAX
        bed.scaling.step()
        bed.discovery.servers.replace([])
        await asyncio.sleep(1)
        assert bed.pods.created == []
        bed.set_documents()
        await asyncio.sleep(10)
        assert len(bed.pods.created) == CREATIONS_MAX


@virtually
async def test_a_pod_on_another_gpu_model_has_the_share_that_it_was_granted():
    """The dispatcher counts with the grant, and with one pod."""
    async with gateway() as bed:
        await bed.first_pod(model="Tesla T4")
        await asyncio.sleep(1)
        [pod] = bed.runtime.dispatcher.pods
        assert pod.share == LARGE._replace(gpu_model="Tesla T4")
        assert pod.state.value == "ready"


@virtually
async def test_pods_of_an_earlier_function_are_ended():
    """A server whose function has changed does not send requests to pods of the old one."""
    pods = Pods()
    async with gateway(pods) as bed:
        await bed.first_pod()
        await asyncio.sleep(1)
    pods.objects[pods.created[0]]["metadata"]["labels"]["esg-scheduler.io/function"] = "earlier"
    async with gateway(pods) as bed:
        await asyncio.sleep(1)
        assert bed.warmed == []
        assert pods.deleted == pods.created


@virtually
async def test_another_server_of_the_function_counts_its_own_pods():
    """Pods of a server that was created again are new, and those of the old one do not count."""
    async with gateway(maxPods=1) as bed:
        bed.scaler.wanted = 1
        await asyncio.sleep(1)
        bed.uid = "of a new server"
        bed.set_documents()
        await asyncio.sleep(1.5)
        assert len(bed.pods.created) == 2
        assert bed.states() == ["starting"]


@virtually
async def test_a_removed_server_has_no_pods():
    """Its pods are Kubernetes' to delete: they are forgotten, and calls are refused."""
    async with gateway() as bed:
        bed.scaler.wanted = 2
        await asyncio.sleep(1)
        bed.pods.bind(bed.pods.created[0])
        await asyncio.sleep(1)
        bed.scaler.wanted = 0
        bed.discovery.servers.replace([])
        await asyncio.sleep(1)
        assert bed.states() == []
        assert bed.pods.deleted == []
        assert bed.refusal("w").status == 503
