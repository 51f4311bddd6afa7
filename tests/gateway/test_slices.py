"""Slices of the gateway's pools: batches run in them, and only while the holder is certain."""

import asyncio

import numpy as np
import pytest

from scheduler.cluster.errors import ApiError
from scheduler.gateway.discovery.holder_pods import MANAGED_BY
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.scaling.open_slices import MARGIN_S
from scheduler.gateway.scaling.slice_holder import GRACE_S
from scheduler.gateway.scaling.slice_holders import CONTACT_S, END_GRACE_S
from scheduler.model import names
from tests.gateway.pool_bed import ROOM_S, SMALL, Pods
from tests.gateway.ready_pods import MODEL
from tests.gateway.runtime_bed import BATCHES, expected, rows
from tests.gateway.slice_bed import LONGEST_S, RUN_S, WHOLE, Gpus, pooled_gateway
from tests.virtual_loop import virtually

WINDOW_S = GRACE_S - MARGIN_S - LONGEST_S  # from the API server's word to the slice's end
FULL = BATCHES[-1]  # rows of a batch that takes a pod alone


def burst(bed, batches):
    """Call with so many full batches at once; return the calls."""
    return [asyncio.ensure_future(bed.outputs("w", rows(FULL, seed))) for seed in range(batches)]


@virtually
async def test_the_holder_requests_the_slice_and_ends_with_its_servers():
    """It has the slice as requests and limits, no rights, and all pooled servers as owners."""
    async with pooled_gateway() as bed:
        await asyncio.sleep(1)
        [name] = bed.holders()
        raw = bed.pods.objects[name]
        metadata, spec = raw["metadata"], raw["spec"]
        assert metadata["labels"] == {
            "esg-scheduler.io/pool": "holder",
            "app.kubernetes.io/managed-by": MANAGED_BY,
        }
        assert metadata["annotations"] == {"esg-scheduler.io/gpu-model": MODEL}
        assert [(o["name"], o["controller"]) for o in metadata["ownerReferences"]] == [("s", True)]
        assert spec["priorityClassName"] == "low"
        assert spec["terminationGracePeriodSeconds"] == GRACE_S
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        [container] = spec["containers"]
        amounts = {"cpu": "8", "memory": "16Mi", "esg-scheduler.io/gpu-percent": "100"}
        assert container["resources"] == {"requests": amounts, "limits": amounts}
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "trap '' TERM" in container["command"][-1]


@virtually
async def test_processes_above_100_percent_never_run_above_the_slice():
    """Three members of 50 % answer all calls on one GPU, of which two run at a time."""
    async with pooled_gateway() as bed:
        await bed.serve(3)
        assert sum(pod.share.gpu_percent for pod in bed.runtime.dispatcher.pods) == 150
        outputs = await asyncio.gather(*burst(bed, 9))
        for seed, arrays in enumerate(outputs):
            x = rows(FULL, seed)
            np.testing.assert_array_equal(arrays["y-f"], expected({"f": ()}, x)["y-f"])
        assert bed.gpus.most_percent == 100


@virtually
async def test_a_refused_first_batch_takes_no_tokens_from_the_batches_after_it():
    """Pods whose model refuses zeros serve at once, before that batch could have ended."""
    async with pooled_gateway() as bed:
        bed.first_batch_errors = [ModelServerError(400, "no zeros")] * 3
        await bed.serve(3)
        assert bed.gpus.begun == 0
        await asyncio.gather(*burst(bed, 9))
        assert bed.gpus.most_percent == 100


@virtually
async def test_members_are_labelled_and_wait_for_the_slice():
    """A member that is ready runs nothing, not even its first batch, before the slice is open."""
    async with pooled_gateway() as bed:
        bed.scaler.wanted = 1
        await asyncio.sleep(1)
        [member], [holder] = bed.members(), bed.holders()
        assert bed.pods.objects[member]["metadata"]["labels"][names.LABEL_POOL] == "member"
        bed.pods.bind_holder(holder, phase="Pending")
        bed.pods.bind(member)
        await asyncio.sleep(5)
        assert (bed.gpus.begun, bed.states()) == (0, ["starting"])
        bed.pods.bind_holder(holder)
        await asyncio.sleep(1 + RUN_S)
        assert (bed.gpus.begun, bed.states()) == (1, ["ready"])


@virtually
async def test_a_holder_that_somebody_deletes_is_kept_until_its_batches_have_ended():
    """No batch begins any more; those that run are answered, and then it ends within a second."""
    async with pooled_gateway() as bed:
        holder = await bed.serve(2)
        first, second, third = burst(bed, 3)
        await asyncio.sleep(RUN_S / 2)
        begun = bed.gpus.begun
        await bed.pods.delete("default", holder, "")
        await asyncio.sleep(RUN_S / 4)
        assert not bed.slice.is_open
        assert (first.done(), second.done()) == (False, False)
        assert bed.pods.graces_s[holder] is None
        await asyncio.gather(first, second)
        await asyncio.sleep(2)
        assert bed.pods.graces_s[holder] == END_GRACE_S
        assert (bed.gpus.begun, third.done()) == (begun, False)
        assert {name for name, _ in _bound(bed)} == set(bed.pods.deleted) | {holder}
        bed.pods.remove(holder)
        await asyncio.sleep(2)
        assert list(bed.runtime.dispatcher.slices) == []
        [replacement] = bed.holders()
        assert replacement != holder
        bed.pods.bind_holder(replacement)
        for name in set(bed.members()) - set(bed.pods.deleted):
            bed.pods.bind(name)
        await third


@virtually
async def test_the_scaler_ends_an_idle_slice():
    """The holder gets a second, and its members go."""
    async with pooled_gateway() as bed:
        holder = await bed.serve(1)
        bed.scaler.slices, bed.scaler.wanted = [], 0
        await asyncio.sleep(3)
        assert bed.pods.graces_s[holder] == END_GRACE_S
        assert set(bed.members()) <= set(bed.pods.deleted)


@virtually
async def test_a_restarted_gateway_ends_no_slice_at_once():
    """It knows no load yet."""
    pods, gpus = Pods(), Gpus()
    async with pooled_gateway(pods, gpus) as bed:
        holder = await bed.serve(1)
    async with pooled_gateway(pods, gpus) as bed:
        bed.scaler.slices, bed.scaler.wanted = [], 1
        await asyncio.sleep(55)
        assert holder not in pods.graces_s
        await asyncio.sleep(10)
        assert pods.graces_s[holder] == END_GRACE_S


@virtually
async def test_a_holder_of_somebody_else_is_not_deleted():
    """It is a slice as others are, and stays when the scaler needs it no more."""
    async with pooled_gateway() as bed:
        holder = await bed.serve(1)
        del bed.pods.objects[holder]["metadata"]["labels"]["app.kubernetes.io/managed-by"]
        bed.pods.bind_holder(holder)
        await asyncio.sleep(61)
        bed.scaler.slices = []
        await asyncio.sleep(3)
        assert holder not in bed.pods.graces_s
        await bed.outputs("w", rows(1))


@virtually
async def test_a_deletion_that_the_watch_does_not_show_closes_the_slice():
    """The API server is asked every few seconds which holders there are."""
    async with pooled_gateway() as bed:
        holder = await bed.serve(1)
        bed.pods.is_silent = True
        bed.pods.remove(holder)
        await asyncio.sleep(CONTACT_S + 1)
        assert not bed.slice.is_open
        assert not bed.pods.deleted


@virtually
async def test_without_contact_a_slice_ends_before_the_holders_grace_period():
    """It opens again with the first answer, and its members stay."""
    async with pooled_gateway() as bed:
        await bed.serve(1)
        await asyncio.sleep(1)
        bed.pods.is_cut_off = True
        await asyncio.sleep(WINDOW_S - CONTACT_S - 1)
        await bed.outputs("w", rows(1))
        await asyncio.sleep(CONTACT_S + 2)
        begun = bed.gpus.begun
        call = asyncio.ensure_future(bed.outputs("w", rows(1)))
        await asyncio.sleep(GRACE_S)
        assert (bed.gpus.begun, call.done()) == (begun, False)
        bed.pods.is_cut_off = False
        await call
        assert not bed.pods.deleted
        assert len(bed.holders()) == 1


@virtually
async def test_a_process_that_was_stopped_sends_nothing_before_it_has_asked():
    """The fence counts the time that the dispatcher has not seen."""
    async with pooled_gateway() as bed:
        await bed.serve(1)
        bed.pods.is_cut_off = True
        clock_s = bed.fence.clock_s
        bed.fence.clock_s = lambda: clock_s() + GRACE_S
        begun = bed.gpus.begun
        assert bed.slice.is_open
        with pytest.raises(Exception, match="slice of a GPU has ended"):
            await bed.outputs("w", rows(1))
        assert bed.gpus.begun == begun


@virtually
async def test_a_restarted_gateway_waits_for_the_longest_run():
    """Batches of a former process may still run, and nobody knows of them."""
    pods, gpus = Pods(), Gpus()
    async with pooled_gateway(pods, gpus) as bed:
        await bed.serve(2)
        calls = burst(bed, 2)
        await asyncio.sleep(RUN_S / 10)
        assert gpus.running["GPU-1"] == 100
        begun = gpus.begun
    for former in calls:
        former.cancel()
    async with pooled_gateway(pods, gpus) as bed:
        bed.scaler.wanted = 2
        restarted_s = asyncio.get_running_loop().time()
        assert gpus.running["GPU-1"] == 100
        call = asyncio.ensure_future(bed.outputs("w", rows(1)))
        while gpus.begun == begun:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() >= restarted_s + LONGEST_S
        await call
        assert gpus.most_percent == 100


@virtually
async def test_a_slice_that_this_process_has_begun_opens_at_once():
    """No batch of a former process can run in it."""
    async with pooled_gateway() as bed:
        begin_s = asyncio.get_running_loop().time()
        await bed.holder()
        await asyncio.sleep(0.1)
        assert bed.slice.is_open
        assert asyncio.get_running_loop().time() < begin_s + LONGEST_S


@virtually
async def test_a_slice_waits_after_another_process_has_served_its_namespace():
    """That process may have begun batches in a slice that this one has created."""
    async with pooled_gateway() as bed:
        await bed.serve(1)
        bed.pools.take_over("default", is_clean=False)
        taken_over_s = asyncio.get_running_loop().time()
        await asyncio.sleep(LONGEST_S / 2)
        assert not bed.slice.is_open
        await bed.outputs("w", rows(1))
        assert asyncio.get_running_loop().time() >= taken_over_s + LONGEST_S


@virtually
async def test_a_first_batch_takes_its_place_among_the_others():
    """A member's first batch waits for tokens, and no other batch runs in its place."""
    async with pooled_gateway() as bed:
        await bed.serve(2)
        calls = burst(bed, 20)
        await asyncio.sleep(RUN_S / 10)
        bed.scaler.wanted = 3
        await asyncio.sleep(1)
        [new] = set(bed.members()) - {name for name, _ in _bound(bed)}
        bed.pods.bind(new)
        await asyncio.sleep(3 * RUN_S)
        assert f"default/{new}" in [name for name, _ in bed.warmed]
        assert not all(call.done() for call in calls)
        await asyncio.gather(*calls)
        assert bed.gpus.most_percent == 100
        assert bed.slice.is_idle


@virtually
async def test_first_batches_run_together_where_a_slice_has_room():
    """Four new members of 50 % are warm after two times of a run."""
    async with pooled_gateway() as bed:
        await bed.holder()
        bed.scaler.wanted = 4
        await asyncio.sleep(1)
        for name in bed.members():
            bed.pods.bind(name)
        begin_s = asyncio.get_running_loop().time()
        while bed.states().count("ready") < 4:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - begin_s < 3 * RUN_S
        assert bed.gpus.most_percent == 100


@virtually
async def test_first_batches_leave_the_others_their_place():
    """In a busy slice one runs at a time, however many members have come."""
    async with pooled_gateway() as bed:
        await bed.serve(2)
        calls = burst(bed, 20)
        bed.scaler.wanted = 5
        await asyncio.sleep(1)
        for name in bed.members():
            bed.pods.bind(name)
        await asyncio.sleep(1)
        while bed.states().count("ready") < 5:
            assert any(pod.runs for pod in bed.runtime.dispatcher.pods)
            await asyncio.sleep(0.05)
        assert not all(call.done() for call in calls)
        await asyncio.gather(*calls)
        assert bed.gpus.most_percent == 100


@virtually
async def test_a_repeated_first_batch_keeps_its_tokens():
    """The time of the first attempt, whose connection broke, ends before that of the second."""
    async with pooled_gateway() as bed:
        bed.first_batch_errors = [ModelServerError(503, "reset by peer", retryable=True)]
        await bed.holder()
        bed.scaler.wanted = 1
        await asyncio.sleep(1)
        [member] = bed.members()
        bed.pods.bind(member)
        while bed.gpus.begun < 2:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.01)
        while bed.states() != ["ready"]:
            assert bed.slice.used_percent == SMALL.gpu_percent
            await asyncio.sleep(0.01)
        assert bed.slice.is_idle


def _bound(bed):
    pods = bed.pods.objects.items()
    return [(name, raw) for name, raw in pods if raw["spec"].get("nodeName")]


@virtually
async def test_a_holder_without_room_is_ended_and_said():
    """After the time for a place it is deleted; the next one comes after a growing pause."""
    async with pooled_gateway() as bed:
        await asyncio.sleep(1)
        [first] = bed.holders()
        message = "0/4 nodes are available: GPU 0: 40 % free, 100 % asked."
        condition = {"type": "PodScheduled", "status": "False", "message": message}
        bed.pods.set_status(first, conditions=[condition])
        await asyncio.sleep(ROOM_S + 1)
        assert bed.pods.deleted == [first]
        [(kind, name, _, reason, text)] = bed.events
        assert (kind, name, reason) == ("FunctionServer", "s", "SliceStartFailed")
        assert message in text
        bed.pods.remove(first)
        assert bed.holders() == []
        await asyncio.sleep(6)
        assert len(bed.holders()) == 1


@virtually
async def test_a_refused_holder_is_said():
    """A quota's refusal is in an Event, and nothing is deleted."""
    async with pooled_gateway() as bed:
        bed.pods.faults = [ApiError(403, "Forbidden", "exceeded quota: gpus")]
        await asyncio.sleep(2)
        assert "exceeded quota: gpus" in bed.events[0][-1]


@virtually
async def test_holders_on_their_way_count():
    """A slice that is wanted has one holder, however long its place takes."""
    async with pooled_gateway() as bed:
        bed.scaler.slices = [WHOLE, WHOLE]
        await asyncio.sleep(ROOM_S - 5)
        assert len(bed.holders()) == 2


@virtually
async def test_a_reserved_pod_with_the_label_of_a_holder_is_no_slice():
    """The role is that of the Binding; a label may be set afterwards."""
    async with pooled_gateway() as bed:
        await bed.holder(role="")
        await asyncio.sleep(CONTACT_S + 1)
        assert list(bed.runtime.dispatcher.slices) == []


@virtually
async def test_a_preempted_holder_leaves_its_room_to_the_pod_that_needs_it():
    """No other one is created until the scheduler has tried that pod again."""
    async with pooled_gateway(Pods(), Gpus()) as bed:
        name = await bed.holder()
        await asyncio.sleep(1)
        bed.pods.objects[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        condition = {"type": "DisruptionTarget", "reason": "PreemptionByScheduler"}
        bed.pods.set_status(name, conditions=[condition])
        await asyncio.sleep(30)
        assert bed.holders() == [name]
        bed.pods.remove(name)
        await asyncio.sleep(14)
        assert bed.holders() == []
        await asyncio.sleep(3)
        assert len(bed.holders()) == 1
