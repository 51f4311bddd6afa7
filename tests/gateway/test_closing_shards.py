"""Calls that are answered at the moment at which their workflow is withdrawn."""

import asyncio

import pytest

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
