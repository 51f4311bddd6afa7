"""Calls of a shard whose workflow is withdrawn, or whose lease has ended."""

import asyncio

import pytest

from scheduler.gateway.calls import CallMovedError
from scheduler.gateway.replicas.dispatch_fence import DispatchFence
from tests.gateway.ready_pods import NAMESPACE
from tests.gateway.runtime_bed import bed, rows
from tests.virtual_loop import run_virtually


async def withdraw_at_the_answer():
    """Remove the workflow between a call's answer and the report of its end."""
    async with bed() as gateway:
        gateway.serve("w", {"f": ()})
        end = gateway.runtime.end

        def withdraw_and_end(request, job, now_ms):
            asyncio.get_running_loop().call_soon(gateway.runtime.remove_workflow, (NAMESPACE, "w"))
            end(request, job, now_ms)

        gateway.runtime.end = withdraw_and_end
        await gateway.outputs("w", rows(1))
        await asyncio.sleep(0)
        return gateway.records.calls


@pytest.mark.replaces
def test_an_answered_call_counts_although_its_shard_closes():
    """A hand-over to another replica ends with the last batch, and loses no count."""
    assert run_virtually(withdraw_at_the_answer()) == [("w", "hit")]


@pytest.mark.parametrize("waiting", [1, 3])
async def test_calls_in_front_of_an_ended_lease_go_to_another_replica(waiting):
    """No call is refused between the end of a lease and the moment at which it is noticed."""
    owned = {NAMESPACE}
    async with bed(guard=lambda connect: DispatchFence(connect, owned.__contains__).connect) as it:
        it.serve("w", {"a": ()})
        model, answered = await it.busy("w")
        calls = [it.call("w", rows(1, number)) for number in range(waiting)]
        owned.clear()
        model.gate.set()
        await answered
        for call in calls:
            with pytest.raises(CallMovedError):
                await call
        assert it.records.calls == [("w", "hit")]
